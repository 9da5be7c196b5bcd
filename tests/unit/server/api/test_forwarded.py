"""Whose a call of the HTTP port is, and that nobody can pretend to be the HTTP port."""

from types import SimpleNamespace
from typing import Any

import pytest

from translane_server.api.callers import caller_naming
from translane_server.api.forwarded import CERTIFICATE_NAME, PEER, SECRET, Forwarding

FORWARDING = Forwarding("s3cret")
CALLER = FORWARDING.naming(caller_naming())
SAID = {PEER: "ipv4:192.0.2.7:50000", SECRET: "s3cret", CERTIFICATE_NAME: "caf%C3%A9"}


def context(peer, said) -> Any:
    return SimpleNamespace(peer=lambda: peer, invocation_metadata=lambda: tuple(said.items()))


def test_a_forwarded_call_is_the_http_clients():
    call = context("unix:", SAID)
    assert FORWARDING.peer(call) == "ipv4:192.0.2.7:50000"
    assert CALLER(call) == "café"
    assert CALLER(context("unix:", SAID | {CERTIFICATE_NAME: ""})) == "192.0.2.7"


def test_the_header_of_a_proxy_names_the_caller_of_a_forwarded_call():
    naming = FORWARDING.naming(caller_naming("X-Caller"))
    assert naming(context("unix:", SAID | {"x-caller": "shop"})) == "shop"
    assert naming(context("unix:", SAID)) == "café"


@pytest.mark.parametrize(
    ("peer", "said"),
    [
        ("ipv4:198.51.100.9:1", SAID),
        ("unix:", SAID | {SECRET: "guessed"}),
        ("unix:", SAID | {SECRET: ""}),
        ("unix:", SAID | {SECRET: b"s3cret"}),
        ("unix:", {PEER: SAID[PEER]}),
    ],
)
def test_any_other_call_is_what_its_connection_says(peer, said):
    call = context(peer, said)
    assert FORWARDING.peer(call) == peer
    assert CALLER(call) == ("unix" if peer == "unix:" else "198.51.100.9")
