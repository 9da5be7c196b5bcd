"""The metrics port, and clients that keep it busy."""

import asyncio
import gzip
import socket
import ssl
import threading
from contextlib import ExitStack, asynccontextmanager, suppress
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import uvloop
from prometheus_client import CollectorRegistry, Counter

from translane_server.http import metrics_port, server
from translane_server.http.metrics_port import MetricsPort

REQUEST = b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n"


@pytest.fixture
def registry():
    registry = CollectorRegistry()
    Counter("sentences", "Sentences.", registry=registry).inc(3)
    Counter("others", "Others.", registry=registry).inc(4)
    return registry


@asynccontextmanager
async def opened(registry, host="127.0.0.1"):
    port = MetricsPort(registry, host, 0)
    await port.start()
    try:
        yield port
    finally:
        await port.stop()


@pytest.fixture
async def port(registry):
    async with opened(registry) as port:
        yield port


async def answer(port, path="/metrics", host="127.0.0.1", **headers):
    """The body of an answer, and its headers."""

    def asked():
        with urlopen(Request(f"http://{host}:{port.port}{path}", headers=headers), timeout=10) as response:
            return response.read(), response.headers

    return await asyncio.to_thread(asked)


def connect(port):
    return socket.create_connection(("127.0.0.1", port.port), timeout=10)


async def all_of(connection):
    def read():
        found = b""
        with suppress(ConnectionError):
            while piece := connection.recv(65536):
                found += piece
        return found

    return await asyncio.to_thread(read)


async def test_a_scrape(port):
    body, headers = await answer(port)
    assert b"sentences_total 3.0" in body
    assert headers["content-type"].startswith("text/plain; version=")
    body, headers = await answer(port, Accept="application/openmetrics-text; version=1.0.0")
    assert body.endswith(b"# EOF\n")
    assert headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    body, headers = await answer(port, **{"Accept-Encoding": "gzip"})
    assert b"sentences_total 3.0" in gzip.decompress(body)


async def test_a_query_belongs_to_no_path_and_the_index_leads_to_the_metrics(port):
    body, _ = await answer(port, "/metrics?name[]=sentences_total")
    assert b"sentences_total 3.0" in body
    assert b"others" not in body
    body, headers = await answer(port, "/")
    assert b'href="/metrics"' in body
    assert headers["content-type"] == "text/html; charset=utf-8"


@pytest.mark.parametrize("path", ["/health", "/metrics/", "/metrics.txt", "/favicon.ico"])
async def test_unknown_paths(port, path):
    with pytest.raises(HTTPError, match="404") as refused:
        await answer(port, path)
    assert b"/metrics" in refused.value.read()
    refused.value.close()


async def test_an_address_of_ipv6(registry):
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    async with opened(registry, "::1") as port:
        body, _ = await answer(port, host="[::1]")
        assert b"sentences_total 3.0" in body


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_silent_clients_stop_no_scrape_and_take_no_thread(registry, loop):
    async def scrape():
        async with opened(registry) as port:
            with ExitStack() as stack:
                silent = [stack.enter_context(connect(port)) for _ in range(50)]
                for connection in silent:
                    connection.sendall(b"GET /metr")
                assert b"sentences_total 3.0" in (await answer(port))[0]
                assert len(port.connections) <= metrics_port._CONNECTIONS
                assert [each.name for each in threading.enumerate() if "metrics" in each.name] == ["metrics_0"]
                assert await all_of(silent[0]) == b""  # the oldest was closed

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(scrape())


async def test_handshakes_that_do_not_end_stop_no_scrape(registry):
    authority = pytest.importorskip("trustme").CA()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    client = ssl.create_default_context()
    authority.configure_trust(client)

    secured = MetricsPort(registry, "127.0.0.1", 0, tls)
    await secured.start()

    def scrape():
        with urlopen(f"https://127.0.0.1:{secured.port}/metrics", timeout=10, context=client) as response:
            return response.read()

    with ExitStack() as stack:
        silent = [stack.enter_context(connect(secured)) for _ in range(50)]
        assert b"sentences_total 3.0" in await asyncio.to_thread(scrape)
        assert await all_of(silent[0]) == b""
        await secured.stop()
        assert await all_of(silent[-1]) == b""


@pytest.mark.parametrize(
    "sent", [b"POST /metrics HTTP/1.0\r\n\r\n", b"POST / HTTP/1.1\r\nHost: here\r\n\r\n", b"nonsense\r\n\r\n"]
)
async def test_other_requests_are_refused(port, sent, capfd):
    with connect(port) as connection:
        connection.sendall(sent)
        found = await all_of(connection)
        assert found.startswith(b"HTTP/1.1 4")
        assert b"sentences_total" not in found
    assert capfd.readouterr().err == ""


async def test_a_scrape_that_nobody_waits_for_is_not_made(registry):
    """Otherwise clients that go at once would make others wait."""
    begun, ending = threading.Event(), threading.Event()

    class Slow:
        scrapes = 0

        def collect(self):
            Slow.scrapes += 1
            begun.set()
            ending.wait(10)
            return []

    registry.register(Slow())
    async with opened(registry) as port:
        with ExitStack() as stack:
            waiting = [stack.enter_context(connect(port)) for _ in range(20)]
            for connection in waiting:
                connection.sendall(REQUEST)
            await asyncio.to_thread(begun.wait, 10)
            assert await all_of(waiting[1]) == b""  # closed for a newer one, and not shown
        while port._state.tasks:  # noqa: ASYNC110 nothing tells
            await asyncio.sleep(0.01)
        ending.set()
        assert b"sentences_total" in (await answer(port))[0]
    assert Slow.scrapes <= 3


async def test_without_descriptors_it_waits_and_tries_again(registry, monkeypatch):
    failures = [OSError(24, "Too many open files"), OSError(24, "Too many open files")]
    accept = socket.socket.accept

    def failing(self):
        if failures:
            raise failures.pop()
        return accept(self)

    monkeypatch.setattr(socket.socket, "accept", failing)
    monkeypatch.setattr(server, "_PAUSE", 0.01)
    async with opened(registry) as port:
        assert b"sentences_total 3.0" in (await answer(port))[0]
    assert not failures


async def test_a_collector_that_fails_is_told_in_the_log_and_stops_no_later_scrape(registry, port, caplog):
    class Broken:
        def collect(self):
            raise KeyError("what is wrong")

        def describe(self):
            return []

    registry.register(broken := Broken())
    with pytest.raises(HTTPError) as failed:
        await answer(port)
    assert failed.value.code == 500
    assert "what is wrong" not in failed.value.read().decode()
    (line,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert isinstance(line.exc_info[1], KeyError)
    registry.unregister(broken)
    assert b"sentences_total 3" in (await answer(port))[0]
