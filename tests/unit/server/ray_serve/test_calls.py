"""What of a call goes on to the engine, and what of its answer goes back."""

import pickle

import pytest

from translane.v1 import translation_pb2 as pb
from translane_server.ray_serve.calls import REMAINING, Call

MESSAGE = pb.TranslateRequest(texts=["你好"]).SerializeToString()


class Context:
    """Serve's picture of the gRPC context, as far as a deployment uses it."""

    def __init__(self, *metadata):
        self.metadata = list(metadata)
        self.set = {}

    def invocation_metadata(self):
        return self.metadata

    def peer(self):
        return "ipv4:192.0.2.7:4321"

    def __getattr__(self, name):
        return lambda value: self.set.__setitem__(name, value)


def test_the_callers_metadata_goes_on_but_not_what_ends_at_the_proxy():
    context = Context(
        ("authorization", "Bearer k"),
        ("x-caller", "me"),
        ("trace-bin", b"\x00"),
        ("application", "translane"),
        ("request_id", "1"),
        ("user-agent", "grpc-go"),
        ("grpc-accept-encoding", "gzip"),
        ("translane-forwarded-peer", "ipv4:198.51.100.1:1"),  # who calls, a caller does not say itself
        ("translane-forwarded-secret", "guess"),
        (REMAINING, "2.5"),
    )
    call = Call.of(MESSAGE, context)
    assert call.metadata == (("authorization", "Bearer k"), ("x-caller", "me"), ("trace-bin", b"\x00"))
    assert (call.message, call.peer, call.seconds) == (MESSAGE, "ipv4:192.0.2.7:4321", 2.5)
    assert pickle.loads(pickle.dumps(call)) == call


def test_a_parsed_message_is_the_same_call():
    assert Call.of(pb.TranslateRequest.FromString(MESSAGE), Context()) == Call.of(MESSAGE, Context())


@pytest.mark.parametrize(("value", "seconds"), [("-1", 0.0), ("nan", None), ("inf", None), ("soon", None), (b"1", 1.0)])
def test_a_deadline_that_is_none(value, seconds):
    assert Call.of(MESSAGE, Context((REMAINING, value))).seconds == seconds
