"""The descriptors that connections may have, and what a service manager hears."""

import contextlib
import logging
import resource
import socket
from unittest.mock import Mock

import pytest

from translane_server.app.lifetime import tell_manager
from translane_server.app.ports import connection_limit


@pytest.fixture
def limits(monkeypatch):
    """Stands for the process's limits: a list of the soft one and the hard one."""
    values = [1024, 1024]

    def change(_which, both):
        values[:] = both

    monkeypatch.setattr(resource, "getrlimit", lambda _which: tuple(values))
    monkeypatch.setattr(resource, "setrlimit", change)
    return values


@pytest.mark.parametrize(
    ("soft", "hard", "raised", "connections"),
    [
        (256, 256, 256, 128),
        (64, 64, 64, 1),
        (1024, 1024, 1024, 768),
        (1024, 4096, 4096, 3072),
        (1024, resource.RLIM_INFINITY, 65536, 4096),
        (1024, 2**30, 65536, 4096),
        (100000, 2**30, 100000, 4096),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, resource.RLIM_INFINITY, 4096),
    ],
)
def test_connections_leave_descriptors_to_the_rest(limits, soft, hard, raised, connections):
    limits[:] = [soft, hard]
    assert connection_limit(None) == connections
    assert limits == [raised, hard]


def test_fewer_and_more_connections_than_possible(limits, caplog):
    assert connection_limit(10) == connection_limit(10, ports=2) == 10
    assert connection_limit(1000) == 768
    assert connection_limit(1000, ports=2) == 384
    assert "at most 768 connections" in caplog.text
    limits[1] = 20000
    assert connection_limit(10000) == 10000


def test_a_limit_that_cannot_be_raised(limits, monkeypatch):
    limits[1] = 4096
    monkeypatch.setattr(resource, "setrlimit", Mock(side_effect=ValueError))
    assert connection_limit(None) == 768


@contextlib.contextmanager
def listening(address):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address)
        manager.settimeout(5)
        yield manager


def test_an_abstract_socket_is_one(tmp_path):
    name = f"translane-{tmp_path.name}-{id(tmp_path)}"
    with listening("\0" + name) as manager:
        tell_manager(f"@{name}", "READY=1")
        assert manager.recv(4096) == b"READY=1"


@pytest.mark.parametrize("address", ["/nowhere/notify", "x" * 200, "a\0b"])
def test_a_manager_that_is_gone_is_a_warning(address, caplog):
    with caplog.at_level(logging.WARNING):
        tell_manager(address, "READY=1")
    (record,) = caplog.records
    assert "NOTIFY_SOCKET" in record.getMessage()


def test_a_manager_that_does_not_read_holds_nobody_up(tmp_path, caplog):
    path = str(tmp_path / "notify")
    with listening(path):
        while not caplog.records:  # until the socket's queue is full
            tell_manager(path, "READY=1")
    assert "cannot be told" in caplog.records[0].getMessage()
