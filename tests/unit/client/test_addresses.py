"""Addresses as callers write them, and the targets that gRPC gets."""

from __future__ import annotations

import socket

import pytest

from translane import Unavailable
from translane_client._addresses import are_local, servers_of, target_of


@pytest.mark.parametrize(
    ("address", "servers"),
    [
        ("host", ("host:50051",)),
        ("host:1", ("host:1",)),
        ("10.0.0.1", ("10.0.0.1:50051",)),
        ("[::1]", ("[::1]:50051",)),
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
def test_addresses_of_servers(address, servers: tuple[str, ...]):
    assert servers_of(address) == servers


@pytest.mark.parametrize(
    "address", ["", " ", "a,", ",", [], [""], "http://a", "a,https://b", ["a:x", "b"], ["a:1", "b:65536"], "a,dns:///b"]
)
def test_what_is_no_address(address):
    with pytest.raises(ValueError, match=r"HOST:PORT is needed|names all servers by itself"):
        servers_of(address)


@pytest.mark.parametrize(
    ("address", "spreads", "local"),
    [
        ("localhost:1", False, True),
        ("127.0.0.1:1", False, True),
        ("127.9.9.9:1", False, True),
        ("[::1]:1", False, True),
        ("unix:/a", False, True),
        ("unix-abstract:a", False, True),
        ("10.0.0.1:1", False, False),
        ("0.0.0.0:1", False, False),
        ("[fd00::1]:1", False, False),
        ("localhost.org:1", True, False),
        ("dns:///translane:1", True, False),
        ("ipv4:10.0.0.1:1,10.0.0.2:1", True, False),
    ],
)
def test_a_name_may_have_several_servers(address: str, spreads: bool, local: bool):
    target = target_of((address,), None)
    options = dict(target.options)
    assert target.uri == address
    assert ("round_robin" in str(options.get("grpc.service_config"))) == spreads
    assert "grpc.default_authority" not in options
    assert are_local([address]) == local
    assert not are_local(["localhost:1", "10.0.0.1:1"])


def test_several_servers_are_one_target(monkeypatch):
    known = {"a": ["10.0.0.3"], "b": ["10.0.0.4", "fd00::4"]}

    def look_up(host: str, port: int, **_):
        if host not in known:
            raise socket.gaierror(socket.EAI_NONAME, "not known")
        return [(None, None, None, "", (address, port)) for address in known[host]]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    assert target_of(("10.0.0.1:1", "10.0.0.2:2"), None).uri == "ipv4:10.0.0.1:1,10.0.0.2:2"
    assert target_of(("[fd00::1]:1", "[fd00::2]:2"), None).uri == "ipv6:[fd00::1]:1,[fd00::2]:2"
    assert target_of(("[fd00::1]:1", "10.0.0.2:2"), None).uri == "ipv6:[fd00::1]:1,[::ffff:10.0.0.2]:2"
    assert target_of(("a:1", "absent:1", "10.0.0.3:1"), None).uri == "ipv4:10.0.0.3:1"
    assert target_of(("a:1", "b:2"), None).uri == "ipv6:[::ffff:10.0.0.3]:1,[::ffff:10.0.0.4]:2,[fd00::4]:2"
    with pytest.raises(Unavailable, match=r"^cannot reach x:1, y:1: the host names are not known$"):
        target_of(("x:1", "y:1"), None)
    options = dict(target_of(("10.0.0.1:1", "10.0.0.2:2"), None).options)
    assert options["grpc.default_authority"] == "10.0.0.1:1"
    options = dict(target_of(("10.0.0.1:1", "10.0.0.2:2"), "translane.example").options)
    assert options["grpc.default_authority"] == "translane.example"
