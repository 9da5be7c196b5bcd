"""Front ends share a port with each other, and with nobody else."""

import errno
import socket

import pytest

from translane_server.front_ends.reserved_port import ReservedPort
from translane_server.http.listener import Listener


@pytest.fixture
def reserved():
    port = ReservedPort("127.0.0.1", 0)
    yield port
    port.close()


def test_front_ends_listen_and_get_all_connections(reserved):
    listeners = [Listener("127.0.0.1", reserved.number, 64, shares_port=True) for _ in range(2)]
    clients = []
    taken = [0, 0]
    try:
        for _ in range(64):
            clients.append(socket.create_connection(("127.0.0.1", reserved.number), timeout=10))
            for place, listener in enumerate(listeners):
                try:
                    connection, _ = listener.accept()
                except BlockingIOError:
                    continue
                connection.close()
                taken[place] += 1
    finally:
        for each in (*listeners, *clients):
            each.close()
    assert sum(taken) == 64
    assert min(taken) > 0


def test_nobody_reaches_a_port_without_front_ends(reserved):
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", reserved.number), timeout=10)


@pytest.mark.parametrize("listens", [False, True], ids=["before a front end listens", "afterwards"])
def test_other_servers_are_kept_away(reserved, listens):
    listener = Listener("127.0.0.1", reserved.number, 1, shares_port=True) if listens else None
    try:
        for other in (ReservedPort, lambda host, port: Listener(host, port, 1)):
            with pytest.raises(OSError, match="in use") as refused:
                other("127.0.0.1", reserved.number)
            assert refused.value.errno == errno.EADDRINUSE
    finally:
        if listener:
            listener.close()


def test_a_port_of_another_server_is_not_taken():
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(OSError, match="in use"):
        ReservedPort("127.0.0.1", other.getsockname()[1])


def test_connections_of_a_server_that_has_ended_do_not_stand_in_the_way():
    with socket.create_server(("127.0.0.1", 0)) as before:
        port = before.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port))
        connection, _ = before.accept()
        connection.close()
        client.close()
    ReservedPort("127.0.0.1", port).close()
