"""What of a call goes on to the engine, and what of its answer goes back."""

import pickle

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from translane.v1 import translation_pb2 as pb
from translane_server.core.errors import FieldViolation, InvalidRequestError
from translane_server.ray_serve.calls import REMAINING, Answer, Call

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


def test_an_answer_leaves_the_context_alone():
    context = Context()
    Answer(b"message").put_on(context)
    assert context.set == {}
    assert Answer(b"message").SerializeToString() == b"message"


def test_an_error_keeps_its_details():
    answer = Answer.failed(InvalidRequestError(FieldViolation("texts[0]", "is empty")))
    assert pickle.loads(pickle.dumps(answer)) == answer
    context = Context()
    answer.put_on(context)
    assert context.set["set_code"] is grpc.StatusCode.INVALID_ARGUMENT
    assert context.set["set_details"] == "texts[0]: is empty"
    ((key, packed),) = context.set["set_trailing_metadata"]
    assert key == "grpc-status-details-bin"
    bad = error_details_pb2.BadRequest()
    assert any(detail.Unpack(bad) for detail in status_pb2.Status.FromString(packed).details)
    assert bad.field_violations[0].field == "texts[0]"
    assert answer.SerializeToString() == b""


def test_a_bug_tells_nothing():
    assert Answer.bug().code is grpc.StatusCode.INTERNAL
    assert Answer.bug().details == "internal error; the server's log has the details"
