"""An attack on the HTTP port: many bodies and headers at once, from two addresses.

python -m helpers.reliability.http_flood HOST:PORT KEY    # until its standard input ends; prints answers by status
"""

import asyncio
import gzip
import json
import sys
from collections import Counter

# All of 127.0.0.0/8 is this machine. Honest callers have other addresses.
ADDRESSES = ("127.0.0.2", "127.0.0.4")

_ZIPPED = gzip.compress(b'{"texts":["' + b" " * 1_900_000 + b'"]}')
_NESTED = b'["",' * 500_000
_FLAT = b'{"texts":[' + b'"",' * 499_999 + b'""]}'
_PAUSE = 0.2  # between two bytes of a slow client [seconds]
_PATIENCE = 30.0  # [seconds]


async def _run(host: str, port: int, key: str) -> None:
    answers: Counter[str] = Counter()
    begun = asyncio.Event()

    async def connected(number: int, sent: bytes, drips: bytes = b"") -> None:
        local = (ADDRESSES[number % len(ADDRESSES)], 0)
        try:
            reader, writer = await asyncio.open_connection(host, port, local_addr=local)
        except OSError:
            answers["not connected"] += 1
            return
        try:
            await begun.wait()
            writer.write(sent)
            for byte in drips:
                await asyncio.sleep(_PAUSE)
                if writer.is_closing():
                    break
                writer.write(bytes([byte]))
            async with asyncio.timeout(_PATIENCE):
                line = await reader.readline()
            answers[line[9:12].decode() or "closed"] += 1
        except (OSError, TimeoutError) as error:
            answers[type(error).__name__] += 1
        finally:
            writer.close()

    def head(size: int, *more: str) -> bytes:
        lines = ["POST /v1/translate HTTP/1.1", "host: a", "content-type: application/json", f"content-length: {size}"]
        lines += [f"authorization: Bearer {key}"] if key else []
        return "\r\n".join([*lines, *more, "", ""]).encode()

    whole = [(head(len(_ZIPPED), "content-encoding: gzip") + _ZIPPED, b"")] * 600
    whole += [(head(len(body)) + body, b"") for body in (_NESTED, _FLAT) for _ in range(16)]
    slow = [(head(1_000_000) + b'{"texts":["', b"a" * 10_000)] * 64
    slow += [(b"POST /v1/translate HTTP/1.1\r\nhost: a\r\nx: ", b"a" * 10_000)] * 300
    attacks = [asyncio.create_task(connected(number, *attack)) for number, attack in enumerate([*slow, *whole])]
    await asyncio.sleep(1.0)
    print("ready", flush=True)
    begun.set()
    await asyncio.to_thread(sys.stdin.read)
    for attack in attacks:
        attack.cancel()
    await asyncio.gather(*attacks, return_exceptions=True)
    print(json.dumps(answers))


if __name__ == "__main__":
    _host, _, _port = sys.argv[1].rpartition(":")
    asyncio.run(_run(_host, int(_port), sys.argv[2]))
