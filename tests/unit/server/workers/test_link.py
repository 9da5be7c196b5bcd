"""A replica's end of its socket."""

import socket

import pytest

from translane_server.engine.loop import ServerGoneError
from translane_server.engine.options import DecodingOptions
from translane_server.engine.sequence import EngineInput, EngineOutput, Sentence, Sequence
from translane_server.workers.messages import framed, pack_input
from translane_server.workers.worker_process import SocketLink

INPUT = EngineInput([Sequence(4, 0, 1.5, False, Sentence([7, 3], DecodingOptions(9)))], [4, 9])
NOTHING = EngineOutput.none()


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(5)
        yield ours, SocketLink(theirs)


def test_the_server_goes(ends):
    server, connection = ends
    server.sendall(framed(pack_input(INPUT)))
    server.close()
    assert [pack_input(each) for each in connection.inputs(wait=False)] == [pack_input(INPUT)]
    with pytest.raises(ServerGoneError):
        connection.inputs(wait=False)
    with pytest.raises(ServerGoneError):
        connection.put(NOTHING)


def test_the_server_goes_with_something_unread(ends):
    server, connection = ends
    connection.put(NOTHING)
    server.close()
    with pytest.raises(ServerGoneError):
        connection.inputs(wait=True)
