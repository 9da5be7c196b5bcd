"""Translates texts side by side, and then the first of them as a stream: translate.py TEXT..."""

import asyncio
import os
import sys

from translane import AsyncClient, TranslaneError


async def main(texts: list[str]) -> None:
    """Print the translations of `texts`, and then the first one as it is decoded."""
    address = os.environ.get("TRANSLANE_CLIENT_SERVER", "localhost:50051")
    # With a file of certificates, the client speaks TLS. A key goes over TLS alone.
    trusted, key = os.environ.get("TRANSLANE_CLIENT_CA"), os.environ.get("TRANSLANE_CLIENT_TOKEN")
    async with AsyncClient(address, ca=trusted, token=key, timeout=30) as client:
        for translation in await asyncio.gather(*(client.translate(text) for text in texts)):
            print(translation)
        async with client.translate_stream(texts[0]) as stream:
            async for delta in stream:
                print(delta, end="", flush=True)
        print()


if __name__ == "__main__":
    try:
        asyncio.run(main(sys.argv[1:] or ["今天天气很好"]))
    except TranslaneError as error:
        sys.exit(f"{error.code}: {error}")
