"""The HTTP port and clients that are slow, hostile or gone; keys and TLS."""

import asyncio
import contextlib
import json
import random
import socket
import ssl
from collections import Counter
from typing import Any
from unittest.mock import Mock

import pytest

from fakes.serving import serving
from helpers.http_calls import JSON, PATHS, until
from helpers.key_files import holder, key_file
from translane_server.access.keys import make_token
from translane_server.http.server import Bounds, HttpServer

TRANSLATE = PATHS["Translate"]


def head(*headers, method="POST", path=TRANSLATE):
    return "\r\n".join([f"{method} {path} HTTP/1.1", "host: a", *headers, "", ""]).encode()


class Raw:
    """A connection that sends any bytes."""

    def __init__(self, running):
        self.port = running.server.http_port

    async def __aenter__(self):
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        return self

    async def __aexit__(self, *_):
        self.writer.close()

    async def send(self, data):
        self.writer.write(data)
        await self.writer.drain()

    async def send_for_ever(self, data):
        while True:
            await self.send(data)
            await asyncio.sleep(0.01)

    async def rest(self):
        """All that comes until the server closes the connection."""
        try:
            return await asyncio.wait_for(self.reader.read(), 20)
        except ConnectionError:
            return b""

    async def answer(self):
        """The status and the JSON of an answer."""
        start = (await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 20)).decode().lower()
        size = int(start.partition("content-length: ")[2].partition("\r\n")[0])
        return int(start.split()[1]), json.loads(await self.reader.readexactly(size))


async def translates(running):
    answer = await running.call("Translate", {"texts": ["hello"]})
    return answer.status == 200 and answer.json["translations"][0]["hypotheses"][0]["text"] == "hello"


@pytest.mark.parametrize(
    ("method", "path", "headers", "status", "reason"),
    [
        ("POST", "/", JSON, 405, "INVALID_FIELD"),
        ("POST", "/v1/Translate", JSON, 404, "METHOD_NOT_FOUND"),
        ("POST", "/v1/translate/", JSON, 404, "METHOD_NOT_FOUND"),
        ("POST", "/v1/models", JSON, 405, "INVALID_FIELD"),
        ("POST", "/translane.v1.ModelService/UnloadModel", JSON, 404, "METHOD_NOT_FOUND"),
        ("POST", "/%0d%0aset-cookie:%20a", JSON, 404, "METHOD_NOT_FOUND"),
        ("POST", "/healthz", {}, 405, "INVALID_FIELD"),
        ("POST", TRANSLATE, {"content-type": "text/plain"}, 415, "INVALID_FIELD"),
        ("POST", TRANSLATE, {}, 415, "INVALID_FIELD"),
        ("POST", TRANSLATE, {"content-type": "application/grpc"}, 415, "INVALID_FIELD"),
        ("POST", TRANSLATE, {"content-type": "application/json; charset=latin-1"}, 415, "INVALID_FIELD"),
        ("POST", TRANSLATE, JSON | {"content-encoding": "gzip"}, 415, "INVALID_FIELD"),
        ("POST", TRANSLATE, JSON | {"request-timeout": "soon"}, 400, "INVALID_FIELD"),
        ("POST", TRANSLATE, JSON | {"request-timeout": "-1"}, 400, "INVALID_FIELD"),
        ("POST", TRANSLATE, JSON | {"request-timeout": "nan"}, 400, "INVALID_FIELD"),
        ("POST", TRANSLATE, JSON | {"authorization": "Bearer \xe9"}, 400, "INVALID_FIELD"),
        ("POST", TRANSLATE, JSON | {"authorization": "Bearer " + "a" * 10_000}, 431, "INVALID_FIELD"),
        ("POST", TRANSLATE, JSON | {"tracestate": "a" * 20_000}, 431, "INVALID_FIELD"),
        ("POST", TRANSLATE, JSON | {"x": "a" * 20_000}, 431, "INVALID_FIELD"),
    ],
)
async def test_a_request_that_is_no_call_is_refused_with_a_reason(method, path, headers, status, reason):
    async with serving(http_port=0) as running:
        refused = await running.request(method, path, b"{}", headers)
        assert (refused.status, refused.reason) == (status, reason)
        assert b"Traceback" not in refused.body
        assert await translates(running)


async def test_a_body_has_a_largest_size():
    async with serving(http_port=0, max_message_bytes=1024) as running:
        message = await running.call("Translate", {"texts": ["a" * 1500]})
        body = await running.call("Translate", {"texts": ["a" * 3000]})
        assert (message.status, message.reason) == (413, "MESSAGE_TOO_LARGE")
        assert (body.status, body.reason) == (413, "MESSAGE_TOO_LARGE")
        assert await translates(running)


@pytest.mark.parametrize(("seconds", "piece"), [(60, 10_000), (0.3, 1)], ids=["of bytes", "of time"])
async def test_the_rest_of_a_refused_body_is_dropped_up_to_a_bound(seconds, piece):
    async with serving(http_port=0, max_message_bytes=4096, message_timeout=seconds) as running, Raw(running) as raw:
        await raw.send(head("content-type: application/json", "content-length: 5000000000"))
        assert (await raw.answer())[0] == 413
        with pytest.raises(ConnectionError):
            await asyncio.wait_for(raw.send_for_ever(b" " * piece), 10)
        assert await translates(running)


async def test_no_byte_of_a_body_is_received_without_a_key(tmp_path):
    file = key_file(tmp_path, shop=holder(make_token()))
    async with serving(http_port=0, keys_file=file) as running, Raw(running) as raw:
        await raw.send(head("content-type: application/json", "content-length: 1000", "expect: 100-continue"))
        status, error = await raw.answer()
        assert (status, error["details"][0]["reason"]) == (401, "MISSING_KEY")


async def test_bodies_have_a_largest_size_together():
    bounds: dict[str, Any] = {"max_message_bytes": 1024, "max_bytes_in_flight": 2048, "caller_share": 0.5}
    async with serving(http_port=0, **bounds) as running, Raw(running) as first:
        await first.send(head("content-type: application/json", "content-length: 2000") + b" " * 1900)
        await asyncio.sleep(0.1)
        refused = await running.call("Translate", b" " * 500)
        assert (refused.status, refused.reason, refused.headers["retry-after"]) == (429, "TOO_MANY_BYTES", "1")
        first.writer.close()
        await asyncio.sleep(0.1)
        assert await translates(running)


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"POST /",
        head("content-type: application/json", "content-length: 10")[:-2],
        b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\nGET /heal",
    ],
)
async def test_a_client_that_never_ends_its_headers_is_disconnected(sent):
    async with serving(http_port=0, message_timeout=0.2) as running, Raw(running) as raw:
        await raw.send(sent)
        rest = await raw.rest()
        assert rest.count(b"HTTP/1.1") == sent.count(b"\r\n\r\n")


async def test_a_body_that_does_not_come_is_refused():
    async with serving(http_port=0, message_timeout=0.2) as running, Raw(running) as raw:
        await raw.send(head("content-type: application/json", "content-length: 10") + b"{")
        status, error = await raw.answer()
        assert (status, error["code"], error["details"][0]["reason"]) == (408, 4, "MESSAGE_TIMEOUT")
        assert await raw.rest() == b""


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 100,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"POST / HTTP/1.1\r\n" + b"a: b\r\n" * 10_000,
        b"GET " + b"/" * 100_000,
        head("content-length: 1", "content-length: 2"),
        head("content-length: -1"),
        head("content-length: " + "9" * 5000),
        head("content-length: 5", "transfer-encoding: chunked"),
        head("x\x00y: 1"),
        head("content-type: application/json", "transfer-encoding: chunked") + b"zz\r\n",
    ],
)
async def test_what_is_no_http_is_refused_and_disconnected(sent):
    async with serving(http_port=0, message_timeout=1) as running:
        async with Raw(running) as raw:
            with contextlib.suppress(ConnectionError):
                await raw.send(sent)
            rest = await raw.rest()
            assert rest == b"" or rest.split()[1] in (b"400", b"404", b"408", b"413", b"431")
        assert await translates(running)


CHUNKED = head("content-type: application/json", "transfer-encoding: chunked")


@pytest.mark.parametrize(
    ("sent", "status", "limits"),
    [
        (CHUNKED + b"1000\r\n" + b" " * 4096 + b"\r\n", 413, {"max_message_bytes": 1024}),  # no length, and no end
        (CHUNKED + b"1\r\n \r\n" * 20_000, 400, {}),
        (head("content-type: application/json", "content-length: 2", *["tracestate: a"] * 300) + b"{}", 431, {}),
    ],
)
async def test_chunks_and_headers_have_a_largest_size_and_number(sent, status, limits):
    async with serving(http_port=0, message_timeout=60, **limits) as running:
        async with Raw(running) as raw:
            await raw.send(sent)
            assert (await raw.answer())[0] == status
        assert await translates(running)


async def test_random_bytes_do_no_harm(caplog):
    numbers = random.Random(5)
    valid = head("content-type: application/json", "content-length: 16") + b'{"texts":["aa"]}'
    async with serving(http_port=0, message_timeout=0.3) as running:
        for _ in range(60):
            data = bytearray(valid)
            for _ in range(numbers.randrange(1, 6)):
                data[numbers.randrange(len(data))] = numbers.randrange(256)
            async with Raw(running) as raw:
                await raw.send(bytes(data))
                raw.writer.write_eof()
                await raw.rest()
        assert await translates(running)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_requests_follow_each_other_on_a_connection():
    one = head("content-type: application/json", "content-length: 16") + b'{"texts":["aa"]}'
    async with serving(http_port=0) as running, Raw(running) as raw:
        await raw.send(one * 3)  # the second and the third do not wait for an answer
        for _ in range(3):
            status, answer = await raw.answer()
            assert (status, answer["translations"][0]["hypotheses"][0]["text"]) == (200, "aa")
        await raw.send(head("content-length: 2", path="/nothing") + b"{}" + one)
        assert (await raw.answer())[0] == 404
        assert (await raw.answer())[0] == 200


async def test_a_connection_beyond_the_limit_is_closed():
    async with serving(http_port=0, max_connections=3) as running:
        connections = [Raw(running) for _ in range(3)]
        for raw in connections:
            await raw.__aenter__()
            await raw.send(head(method="GET", path="/healthz"))
            assert (await raw.answer())[0] == 200
        async with Raw(running) as one_more:
            await one_more.send(head(method="GET", path="/healthz"))
            assert await one_more.rest() == b""
        for raw in connections:
            raw.writer.close()
        await asyncio.sleep(0.1)
        assert await translates(running)


@pytest.mark.parametrize("name", ["Translate", "TranslateStream"])
async def test_a_client_that_goes_away_frees_its_rows(name):
    content = b'{"texts":["aaaa"]}' if name == "Translate" else b'{"text":"aaaa" }  '
    async with serving(http_port=0) as running:
        running.backend.hold()
        async with Raw(running) as raw:
            sized = f"content-length: {len(content)}"
            await raw.send(head("content-type: application/json", sized, path=PATHS[name]) + content)
            await until(lambda: running.dispatcher.active_rows + running.dispatcher.waiting > 0)
        await until(lambda: running.value("translane_open_calls") == 0)
        running.backend.release()
        await until(lambda: running.dispatcher.active_rows == 0)
        assert await translates(running)


async def test_a_client_that_takes_no_answer_is_disconnected():
    async with serving(http_port=0, message_timeout=0.3) as running, Raw(running) as raw:
        raw.writer.transport.pause_reading()
        for _ in range(400):
            raw.writer.write(head(method="GET", path="/openapi.json"))
        port = running.server._http
        assert port is not None
        await until(lambda: not port.connections)
        assert await translates(running)


@pytest.mark.slow  # the system's buffers are to be full
async def test_a_client_that_takes_not_the_end_of_its_last_answer_is_disconnected():
    async with serving(http_port=0, message_timeout=0.3) as running, Raw(running) as raw:
        raw.writer.transport.pause_reading()
        port = running.server._http
        assert port is not None
        await until(lambda: len(port.connections) == 1)
        (connection,) = port.connections
        while not connection.transport.get_write_buffer_size():  # so little that the server does not wait for it
            raw.writer.write(head(method="GET", path="/page/status.js"))
            await asyncio.sleep(0.01)
        raw.writer.write(head("connection: close", method="GET", path="/healthz"))
        await until(lambda: not port.connections)


async def test_keys_are_those_of_grpc(tmp_path):
    token = make_token()
    async with serving(http_port=0, keys_file=key_file(tmp_path, shop=holder(token))) as running:
        assert (await running.call("Translate", {"texts": ["a"]}, {"authorization": f"Bearer {token}"})).status == 200
        for name in ("Translate", "TranslateStream"):
            refused = await running.call(name, {})
            assert (refused.status, refused.reason) == (401, "MISSING_KEY")
            assert refused.headers["www-authenticate"] == "Bearer"
        wrong = await running.call("Translate", {}, {"authorization": f"Bearer {make_token()}"})
        assert (wrong.status, wrong.reason) == (401, "UNKNOWN_KEY")
        assert (await running.request("GET", "/healthz")).status == 200
        assert running.value("translane_key_sentences_total", key="") == 1


@pytest.fixture
def certificates(tmp_path):
    """The server's settings, the authority's file, and the contexts of a client without and with a certificate."""
    pytest.importorskip("trustme")
    from helpers.certificates import Authority

    authority = Authority(tmp_path)
    files = authority.files("localhost")
    client, own = (ssl.create_default_context(cafile=authority.file) for _ in range(2))
    authority.issue("shop.example").configure_cert(own)
    return {"tls_cert": files.cert, "tls_key": files.key}, authority.file, client, own


async def test_tls_is_that_of_grpc(certificates):
    tls, _, client, _ = certificates
    async with serving(http_port=0, **tls) as running:
        assert (await running.call("Translate", {"texts": ["a"]}, tls=client)).status == 200
        async with Raw(running) as raw:
            await raw.send(head(method="GET", path="/healthz"))
            assert not (await raw.rest()).startswith(b"HTTP/1.1 200")


async def test_a_handshake_that_does_not_end_counts_as_a_connection_and_ends_soon(certificates):
    tls, _, client, _ = certificates
    async with serving(http_port=0, max_connections=1, message_timeout=2, **tls) as running, Raw(running):

        async def is_answered() -> bool:
            try:
                return (await running.request("GET", "/healthz", tls=client)).status == 200
            except OSError:
                return False

        assert not await is_answered()
        await until(is_answered)


async def test_the_certificate_of_a_client_names_the_caller(certificates):
    tls, ca, client, own = certificates
    async with serving(http_port=0, max_calls=4, caller_share=0.25, tls_client_ca=ca, **tls) as running:
        with pytest.raises(OSError):
            await running.call("Translate", {"texts": ["a"]}, tls=client)
        running.backend.hold()
        held = asyncio.create_task(running.call("Translate", {"texts": ["a"]}, tls=own))
        await until(lambda: running.value("translane_open_calls") == 1)
        refused = await running.call("Translate", {"texts": ["a"]}, tls=own)
        assert "calls of this caller" in refused.json["message"]
        running.backend.release()
        assert (await held).status == 200


async def test_a_bug_is_not_shown(monkeypatch, caplog):
    monkeypatch.setattr("translane_server.http.calls.read_json", Mock(side_effect=RuntimeError("a detail")))
    async with serving(http_port=0) as running:
        for name in ("Translate", "TranslateStream"):
            failed = await running.call(name, {})
            assert (failed.status, failed.json["code"]) == (500, 13)
            assert b"a detail" not in failed.body
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [
        "Translate failed",
        "TranslateStream failed",
    ]


async def test_requests_that_come_at_once_leave_turns_to_others():
    flood, turn, begun = 300, 0, []
    addresses = ["127.0.0.2"] * flood + ["127.0.0.3"]

    async def application(scope, _receive, send):
        begun.append((turn, scope["client"][0]))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    async def count_turns():
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    server = HttpServer(application, "127.0.0.1", 0, Bounds(connections=400, patience=20, idle=20, age=20))
    await server.start()
    counting = asyncio.create_task(count_turns())
    try:
        with contextlib.ExitStack() as opened:
            to_it = ("127.0.0.1", server.port)
            sockets = [
                opened.enter_context(socket.create_connection(to_it, source_address=(each, 0))) for each in addresses
            ]
            await until(lambda: len(server.connections) == len(sockets))
            for each in sockets:  # the event loop sees all of them at its next turn
                each.sendall(head(method="GET"))
            await until(lambda: len(begun) == len(sockets))
    finally:
        counting.cancel()
        await server.stop()
    assert max(Counter(turn for turn, _ in begun).values()) <= 64
    assert "127.0.0.3" in [address for _, address in begun[: flood // 3]]  # though it has come last
