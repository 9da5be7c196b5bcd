"""Addresses of servers, and connecting to them."""

import socket
from contextlib import ExitStack

import grpc
import pytest

from fakes.translation_server import fails, reason
from translane import Unavailable
from translane_client._addresses import servers_of, target_of
from translane_client._core import channel_options


@pytest.fixture(params=["never accepts", "never speaks"])
def silent(request):
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
def test_an_address_where_nobody_answers(silent, connect, time, several):
    address = f"{silent}, {silent.replace('127.0.0.1', '127.0.0.2')}" if several else silent
    client = connect(address, connect_timeout=0.5)
    silence = [f"cannot reach {address}: {cause}" for cause in ("the connection timed out", "nobody answers there")]
    refusal = f"cannot reach {address}: connection refused"  # gRPC may tell of the other server, which may come back
    for call in (client.translate, lambda text: list(client.translate_iter([text, "b"])), client.translate_stream):
        with pytest.raises(Unavailable) as caught:
            list(call("a"))
        assert str(caught.value) in [*silence, *([refusal] if several else [])]
    if not several:
        assert time.pauses == []  # no other attempt


def test_a_server_that_gives_no_sign_of_life_is_noticed():
    options = dict(channel_options())
    assert options["grpc.keepalive_time_ms"] >= 2 * 10_000  # servers allow a ping every 10 s
    assert options["grpc.http2.ping_timeout_ms"] == options["grpc.keepalive_timeout_ms"] == 10_000
    assert options["grpc.http2.max_pings_without_data"] == 0
    assert options["grpc.min_reconnect_backoff_ms"] == 5000


def test_a_server_cannot_write_to_the_terminal(server, command):
    server.script.append(fails(grpc.StatusCode.INTERNAL, "\x1b]0;title\x07 no\nline", reason("INTERNAL")))
    assert command("translate", "a") == 1
    assert command.err == "translane translate: \\x1b]0;title\\x07 no\\nline\n"


def test_an_address_where_nobody_answers_holds_up_no_other(silent, server, connect, time):
    client = connect([silent, server.address])
    for _ in range(10):
        assert client.translate("a").text == "<a>"
    assert time.pauses == []


# Addresses as callers write them, and the targets that gRPC gets.


@pytest.mark.parametrize(
    ("address", "servers"),
    [
        ("host", ("host:50051",)),
        ("host:1", ("host:1",)),
        ("10.0.0.1", ("10.0.0.1:50051",)),
        ("[::1]", ("[::1]:50051",)),
        ("::1", ("[::1]:50051",)),
        ("a, b:2 ,[::1]", ("a:50051", "b:2", "[::1]:50051")),
        ("a,a:50051", ("a:50051",)),
        (["a", "b:2"], ("a:50051", "b:2")),
        (iter(["a"]), ("a:50051",)),
        ("dns:///a:1", ("dns:///a:1",)),
        (["dns:///a:1"], ("dns:///a:1",)),
        ("ipv4:10.0.0.1:1,10.0.0.2:1", ("ipv4:10.0.0.1:1,10.0.0.2:1",)),
        ("unix:/run/translane", ("unix:/run/translane",)),
    ],
)
def test_addresses_of_servers(address, servers):
    assert servers_of(address) == servers


@pytest.mark.parametrize(
    "address",
    ["", " ", "a,", ",", [], [""], "http://a", "a,grpc://b:1", ["a:x", "b"], ["a:1", "b:65536"], "a,dns:///b"],
)
def test_what_is_no_address(address):
    with pytest.raises(ValueError, match=r"HOST:PORT is needed|names all servers by itself"):
        servers_of(address)


def test_several_servers_are_one_target(monkeypatch):
    known = {"a": ["10.0.0.3"], "b": ["10.0.0.4", "fd00::4"]}

    def look_up(host: str, port: int, **_):
        if host not in known:
            raise socket.gaierror(socket.EAI_NONAME, "not known")
        return [(None, None, None, "", (address, port)) for address in known[host]]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    assert target_of(("10.0.0.1:1", "10.0.0.2:2"), None)[0] == "ipv4:10.0.0.1:1,10.0.0.2:2"
    assert target_of(("[fd00::1]:1", "[fd00::2]:2"), None)[0] == "ipv6:[fd00::1]:1,[fd00::2]:2"
    assert target_of(("[fd00::1]:1", "10.0.0.2:2"), None)[0] == "ipv6:[fd00::1]:1,[::ffff:10.0.0.2]:2"
    assert target_of(("a:1", "absent:1", "10.0.0.3:1"), None)[0] == "ipv4:10.0.0.3:1"
    assert target_of(("a:1", "b:2"), None)[0] == "ipv6:[::ffff:10.0.0.3]:1,[::ffff:10.0.0.4]:2,[fd00::4]:2"
    with pytest.raises(Unavailable, match=r"^cannot reach x:1, y:1: the host names are not known$"):
        target_of(("x:1", "y:1"), None)
    for name in (None, "translane.example"):
        options = dict(target_of(("10.0.0.1:1", "10.0.0.2:2"), name)[1])
        assert options["grpc.default_authority"] == (name or "10.0.0.1:1")


@pytest.mark.parametrize(
    ("address", "spreads"),
    [("localhost:1", False), ("10.0.0.1:1", False), ("translane:1", True), ("ipv4:10.0.0.1:1,10.0.0.2:1", True)],
)
def test_a_name_may_have_several_servers(address, spreads):
    target, options = target_of((address,), None)
    assert target == address
    assert ("round_robin" in str(options)) == spreads
    assert "grpc.default_authority" not in dict(options)
