"""Whose a call of the HTTP port is, and that nobody can pretend to be the HTTP port."""

import pytest

from translane_server.api.forwarded import CERTIFICATE_NAME, PEER, SECRET, forwarded

SAID = {PEER: "ipv4:192.0.2.7:50000", SECRET: "s3cret", CERTIFICATE_NAME: "caf%C3%A9"}


def found(peer, said):
    return forwarded(tuple(said.items()), peer, "s3cret")


def test_a_forwarded_call_is_the_http_clients():
    assert found("unix:", SAID) == ("ipv4:192.0.2.7:50000", "café")
    assert found("unix:", SAID | {CERTIFICATE_NAME: ""}) == ("ipv4:192.0.2.7:50000", "")


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
    assert found(peer, said) == (peer, "")
