"""A service manager hears over a real datagram socket when the server translates and when it stops."""

import contextlib
import logging
import socket

import pytest

from translane_server.app.lifetime import tell_manager


@contextlib.contextmanager
def listening(address):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address)
        manager.settimeout(5)
        yield manager


def test_a_manager_hears(tmp_path):
    path = str(tmp_path / "notify")
    with listening(path) as manager:
        tell_manager(path, "READY=1")
        assert manager.recv(4096) == b"READY=1"


def test_an_abstract_socket_is_one(tmp_path):
    name = f"translane-{tmp_path.name}-{id(tmp_path)}"
    with listening("\0" + name) as manager:
        tell_manager(f"@{name}", "READY=1")
        assert manager.recv(4096) == b"READY=1"


@pytest.mark.parametrize("address", [None, ""])
def test_without_an_address_nobody_is_told(address, caplog):
    tell_manager(address, "READY=1")
    assert caplog.records == []


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
