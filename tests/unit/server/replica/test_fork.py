"""What replicas fork from: it answers where it cannot, and goes where nobody is there. (Real ones: test_command.py.)"""

import os
import socket

import pytest

from fakes.backend import VOCABULARY
from translane_server.errors import BundleError, StartupError
from translane_server.replica.fork import serve_forked
from translane_server.replica.messages import Frames, framed
from translane_server.replica.setup import ReplicaSetup


@pytest.fixture
def pairs():
    """The server's and the replicas' ends of two connections, over which the setups were sent."""
    pairs = [socket.socketpair() for _ in range(2)]
    for number, (ours, _) in enumerate(pairs):
        ours.sendall(framed(ReplicaSetup(number, 1, VOCABULARY)))
    yield pairs
    for pair in pairs:
        for end in pair:
            end.close()


@pytest.fixture
def reports():
    reading, writing = os.pipe()
    yield writing
    os.close(writing)
    with os.fdopen(reading) as lines:
        assert lines.read() == ""


def never(*_arguments):
    raise AssertionError


def answers(pairs):
    return [Frames().feed(ours.recv(1 << 16))[0] for ours, _ in pairs]


def test_a_model_that_does_not_load_is_told_to_all(pairs, reports):
    def load(_setup):
        raise BundleError("model bundle x: it is not there")

    assert serve_forked([theirs for _, theirs in pairs], load, never, reports) == BundleError.exit_code
    assert [str(answer) for answer in answers(pairs)] == ["model bundle x: it is not there"] * 2


def test_a_fork_that_fails_is_told(pairs, reports, monkeypatch):
    def fork():
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", fork)
    assert serve_forked([theirs for _, theirs in pairs], lambda _setup: "model", never, reports) == 0
    found = answers(pairs)
    assert [type(answer) for answer in found] == [StartupError] * 2
    assert str(found[1]) == "replica 1 cannot be started: Resource temporarily unavailable"


def test_nothing_is_loaded_where_the_server_has_gone(pairs, reports):
    extra, theirs = socket.socketpair()
    with theirs:
        extra.close()
        assert serve_forked([*(theirs for _, theirs in pairs), theirs], never, never, reports) == 0
