"""Addresses where nobody answers: a clear error within the time for connecting, and no other attempt."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import grpc
import pytest
from unit.client.fake_server import fails, reason

from helpers.client_command import Command
from translane import Unavailable
from translane_client._core import channel_options


@pytest.fixture(params=["never accepts", "never speaks"])
def silent(request) -> Iterator[str]:
    """The address of a socket that listens and does no more."""
    with ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.bind(("127.0.0.1", 0))
        listening.listen(0 if request.param == "never accepts" else 16)
        if request.param == "never accepts":  # once its queue is full, the kernel answers no more either
            for _ in range(8):
                waiting = stack.enter_context(socket.socket())
                waiting.setblocking(False)
                waiting.connect_ex(listening.getsockname())
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize("several", [False, True])
def test_an_address_where_nobody_answers(silent, connect, time, several: bool):
    address = f"{silent}, {silent.replace('127.0.0.1', '127.0.0.2')}" if several else silent
    client = connect(address, connect_timeout=0.5)
    with pytest.raises(Unavailable) as caught:
        client.translate("a")
    told = ("the connection timed out", "nobody answers there", *(["connection refused"] if several else []))
    assert str(caught.value) in [f"cannot reach {address}: {cause}" for cause in told]
    with pytest.raises(Unavailable):
        list(client.translate_iter(["a", "b"]))
    with pytest.raises(Unavailable):
        list(client.translate_stream("a"))
    assert time.pauses == []  # no other attempt


def test_the_time_for_connecting_is_checked(connect):
    for wrong in (0, -1, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="connect_timeout must be a positive number of seconds"):
            connect("localhost", connect_timeout=wrong)


def test_a_server_that_gives_no_sign_of_life_is_noticed():
    options = dict(channel_options())
    assert options["grpc.keepalive_time_ms"] >= 2 * 10_000  # servers allow a ping every 10 s
    assert options["grpc.http2.ping_timeout_ms"] == options["grpc.keepalive_timeout_ms"] == 10_000
    assert options["grpc.http2.max_pings_without_data"] == 0
    assert options["grpc.min_reconnect_backoff_ms"] == 5000


def test_a_server_cannot_write_to_the_terminal(server, command: Command):
    server.script.append(fails(grpc.StatusCode.INTERNAL, "\x1b]0;title\x07 no\nline", reason("INTERNAL")))
    assert command("translate", "a") == 1
    assert command.err == "translane translate: \\x1b]0;title\\x07 no\\nline\n"


def test_an_address_where_nobody_answers_holds_up_no_other(silent, server, connect, time):
    client = connect([silent, server.address])
    for _ in range(10):
        assert client.translate("a").text == "<a>"
    assert time.pauses == []
