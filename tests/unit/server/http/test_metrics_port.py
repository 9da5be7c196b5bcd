"""The metrics port, and clients that keep it busy."""

import asyncio
import gzip
import socket
import ssl
import threading
from contextlib import ExitStack, asynccontextmanager, suppress
from urllib.request import urlopen

import pytest
import uvloop
from prometheus_client import CollectorRegistry, Counter

from helpers.http_calls import request
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
async def opened(registry, host="127.0.0.1", tls=None):
    port = MetricsPort(registry, host, 0, tls)
    await port.start()
    try:
        yield port
    finally:
        await port.stop()


@pytest.fixture
async def port(registry):
    async with opened(registry) as port:
        yield port


async def answer(port, path="/metrics", method="GET", tls=None, **headers):
    return await request(port.port, method, path, headers=headers, tls=tls)


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
    found = await answer(port)
    assert b"sentences_total 3.0" in found.body
    assert found.headers["content-type"].startswith("text/plain; version=")
    found = await answer(port, Accept="application/openmetrics-text; version=1.0.0")
    assert found.body.endswith(b"# EOF\n")
    assert found.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    found = await answer(port, **{"Accept-Encoding": "gzip"})
    assert b"sentences_total 3.0" in gzip.decompress(found.body)


async def test_a_query_belongs_to_no_path_and_the_index_leads_to_the_metrics(port):
    found = await answer(port, "/metrics?name[]=sentences_total")
    assert b"sentences_total 3.0" in found.body
    assert b"others" not in found.body
    found = await answer(port, "/")
    assert b'href="/metrics"' in found.body
    assert found.headers["content-type"] == "text/html; charset=utf-8"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/health", 404),
        ("GET", "/metrics/", 404),
        ("GET", "/metrics.txt", 404),
        ("POST", "/", 404),
        ("POST", "/metrics", 405),
    ],
)
async def test_other_requests_are_refused(port, method, path, status, capfd):
    found = await answer(port, path, method)
    assert found.status == status
    assert b"sentences_total" not in found.body
    assert status == 405 or b"/metrics" in found.body
    assert capfd.readouterr().err == ""


async def test_an_address_of_ipv6(registry):
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    async with opened(registry, "::1") as port:
        with await asyncio.to_thread(urlopen, f"http://[::1]:{port.port}/metrics", timeout=10) as found:
            assert b"sentences_total 3.0" in found.read()


@pytest.mark.parametrize("is_secured", [False, True], ids=["headers", "handshakes"])
@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_silent_clients_stop_no_scrape_and_take_no_thread(registry, loop, is_secured, authority):
    tls, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("localhost").configure_cert(tls)
    authority.configure_trust(client)

    async def scrape():
        with ExitStack() as stack:
            async with opened(registry, tls=tls if is_secured else None) as port:
                silent = [stack.enter_context(connect(port)) for _ in range(50)]
                for connection in [] if is_secured else silent:
                    connection.sendall(b"GET /metr")
                assert b"sentences_total 3.0" in (await answer(port, tls=client if is_secured else None)).body
                assert len(port.connections) <= metrics_port._CONNECTIONS
                assert [each.name for each in threading.enumerate() if "metrics" in each.name] == ["metrics_0"]
                assert await all_of(silent[0]) == b""  # the oldest was closed
            assert await all_of(silent[-1]) == b""

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(scrape())


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
        assert b"sentences_total" in (await answer(port)).body
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
        assert b"sentences_total 3.0" in (await answer(port)).body
    assert not failures


async def test_a_collector_that_fails_is_told_in_the_log_and_stops_no_later_scrape(registry, port, caplog):
    class Broken:
        def collect(self):
            raise KeyError("what is wrong")

        def describe(self):
            return []

    registry.register(broken := Broken())
    failed = await answer(port)
    assert failed.status == 500
    assert b"what is wrong" not in failed.body
    (line,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert isinstance(line.exc_info[1], KeyError)
    registry.unregister(broken)
    assert b"sentences_total 3" in (await answer(port)).body
