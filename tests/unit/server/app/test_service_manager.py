"""A service manager hears over a real datagram socket when the server translates and when it stops."""

import contextlib
import logging
import socket

import pytest

from translane_server.app.lifetime import ServiceManager


@contextlib.contextmanager
def listening(address):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address)
        manager.settimeout(5)
        yield manager


def messages_of(manager):
    return manager.recv(4096).decode().splitlines()


def test_a_manager_hears_both(tmp_path):
    path = str(tmp_path / "notify")
    with listening(path) as manager:
        ServiceManager(path).ready()
        assert "READY=1" in messages_of(manager)
        ServiceManager(path).stopping()
        assert "STOPPING=1" in messages_of(manager)


def test_an_abstract_socket_is_one(tmp_path):
    name = f"translane-{tmp_path.name}-{id(tmp_path)}"
    with listening("\0" + name) as manager:
        ServiceManager(f"@{name}").ready()
        assert "READY=1" in messages_of(manager)


@pytest.mark.parametrize("address", [None, ""])
def test_without_an_address_nobody_is_told(address, caplog):
    manager = ServiceManager(address)
    manager.ready()
    manager.stopping()
    assert caplog.records == []


@pytest.mark.parametrize("address", ["/nowhere/notify", "x" * 200, "a\0b"])
def test_a_manager_that_is_gone_is_a_warning(address, caplog):
    with caplog.at_level(logging.WARNING):
        ServiceManager(address).ready()
    (record,) = caplog.records
    assert "NOTIFY_SOCKET" in record.getMessage()


def test_a_manager_that_does_not_read_holds_nobody_up(tmp_path, caplog):
    path = str(tmp_path / "notify")
    with listening(path):
        manager = ServiceManager(path)
        while not caplog.records:  # until the socket's queue is full
            manager.ready()
    assert "cannot be told" in caplog.records[0].getMessage()
