"""The metrics port, and clients that keep it busy."""

import socket
import threading
from contextlib import ExitStack, suppress
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry, Counter

from translane_server.observation import metrics_server
from translane_server.observation.metrics_server import MetricsServer

REQUEST = b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n"


@pytest.fixture
def registry():
    registry = CollectorRegistry()
    Counter("sentences", "Sentences.", registry=registry).inc(3)
    return registry


@pytest.fixture
def server(registry):
    server = MetricsServer(registry, "127.0.0.1", 0)
    yield server
    server.stop()


def scrape(server):
    with urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=10) as response:
        return response.read().decode()


def connect(server):
    return socket.create_connection(("127.0.0.1", server.port), timeout=10)


def all_of(connection):
    found = b""
    with suppress(ConnectionError):
        while piece := connection.recv(65536):
            found += piece
    return found


def test_a_query_belongs_to_no_path(server):
    with urlopen(f"http://127.0.0.1:{server.port}/metrics?name[]=sentences_total", timeout=10) as response:
        assert b"sentences_total 3.0" in response.read()


@pytest.mark.parametrize("path", ["/health", "/metrics/", "/metrics.txt", "/favicon.ico"])
def test_unknown_paths(server, path):
    with pytest.raises(HTTPError, match="404") as refused:
        urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=10)
    assert b"/metrics" in refused.value.read()
    refused.value.close()


def test_an_address_of_ipv6(registry):
    try:
        server = MetricsServer(registry, "::1", 0)
    except OSError:
        pytest.skip("this machine has no IPv6")
    with urlopen(f"http://[::1]:{server.port}/metrics", timeout=10) as response:
        assert b"sentences_total 3.0" in response.read()
    server.stop()


@pytest.mark.slow
def test_silent_clients_stop_no_scrape_and_take_few_threads(server):
    before = threading.active_count()
    with ExitStack() as stack:
        silent = [stack.enter_context(connect(server)) for _ in range(50)]
        for connection in silent:
            connection.sendall(b"GET /metr")
        assert "sentences_total 3.0" in scrape(server)
        assert threading.active_count() <= before + metrics_server._CONNECTIONS + 1
        assert silent[0].recv(1) == b""  # the oldest was closed


def test_a_slow_request_ends(registry, monkeypatch):
    monkeypatch.setattr(metrics_server, "_REQUEST_TIME", 0.05)
    server = MetricsServer(registry, "127.0.0.1", 0)
    with connect(server) as connection:
        connection.sendall(REQUEST[:-2])
        assert all_of(connection) == b""
    server.stop()


@pytest.mark.parametrize("sent", [b"GET /" + b"x" * 20000, b"GET / HTTP/1.0\r\n" + b"x: y\r\n" * 4000])
def test_a_large_request_ends(server, sent):
    with connect(server) as connection:
        with suppress(ConnectionError):  # it may be closed before all is sent
            connection.sendall(sent)
        assert b"sentences_total" not in all_of(connection)
    assert "sentences_total 3.0" in scrape(server)


@pytest.mark.parametrize("sent", [b"POST / HTTP/1.0\r\n\r\n", b"nonsense\r\n\r\n"])
def test_other_requests_are_refused(server, sent, capfd):
    with connect(server) as connection:
        connection.sendall(sent)
        assert b"sentences_total" not in all_of(connection)
    assert capfd.readouterr().err == ""


def test_stopping_ends_open_connections(registry):
    server = MetricsServer(registry, "127.0.0.1", 0)
    with connect(server) as connection:
        connection.sendall(b"GET")
        server.stop()
        assert all_of(connection) == b""


def test_without_descriptors_it_waits_and_tries_again(registry, monkeypatch):
    failures = [OSError(24, "Too many open files"), OSError(24, "Too many open files")]
    pauses: list[float] = []
    accept = socket.socket.accept

    def failing(self):
        if failures:
            raise failures.pop()
        return accept(self)

    monkeypatch.setattr(socket.socket, "accept", failing)
    monkeypatch.setattr("translane_server.observation.metrics_server.time.sleep", pauses.append)
    server = MetricsServer(registry, "127.0.0.1", 0)
    assert "sentences_total 3.0" in scrape(server)
    assert pauses == [metrics_server._PAUSE] * 2
    server.stop()
