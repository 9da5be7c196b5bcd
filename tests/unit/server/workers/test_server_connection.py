"""A replica's end of its socket."""

import socket

import pytest

from translane_server.engine.options import DecodingOptions
from translane_server.engine.sequence import Measurements, Sentence, Task
from translane_server.workers.interface import Report
from translane_server.workers.messages import Frames, Orders, framed, pack_orders, unpack_report
from translane_server.workers.server_connection import ServerConnection, ServerGoneError

ORDERS = Orders([Task(4, 0, 1.5, False, Sentence([7, 3], DecodingOptions(9)))], [4, 9])
NOTHING = Report([], [], [], Measurements.none())


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(5)
        yield ours, ServerConnection(theirs)


def test_orders_are_taken_as_they_come(ends):
    server, connection = ends
    assert connection.orders(wait=False) == []
    server.sendall(framed(pack_orders(ORDERS)))
    server.sendall(framed(pack_orders(ORDERS)))
    found = connection.orders(wait=True)
    while len(found) < 2:
        found += connection.orders(wait=True)
    assert found == [ORDERS, ORDERS]
    assert connection.orders(wait=False) == []


def test_a_report_reaches_the_server(ends):
    server, connection = ends
    connection.report(NOTHING)
    assert [unpack_report(message) for message in Frames().feed(server.recv(1 << 16))] == [NOTHING]


def test_the_server_goes(ends):
    server, connection = ends
    server.sendall(framed(pack_orders(ORDERS)))
    server.close()
    assert connection.orders(wait=False) == [ORDERS]
    with pytest.raises(ServerGoneError):
        connection.orders(wait=False)
    with pytest.raises(ServerGoneError):
        connection.report(NOTHING)


def test_the_server_goes_with_something_unread(ends):
    server, connection = ends
    connection.report(NOTHING)
    server.close()
    with pytest.raises(ServerGoneError):
        connection.orders(wait=True)
