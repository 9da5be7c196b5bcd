"""From a status to an exception."""

from __future__ import annotations

import pickle
from collections import deque

import grpc
import pytest
from unit.client.fake_server import FakeServer, bad_fields, fails, reason, refuses, retry_in

import translane
from translane import (
    Connection,
    FieldViolation,
    Internal,
    InvalidArgument,
    QueueFull,
    RetryPolicy,
    TranslaneError,
    Unavailable,
)
from translane_client._status import exception_from

CODES = {
    grpc.StatusCode.INVALID_ARGUMENT: "InvalidArgument",
    grpc.StatusCode.NOT_FOUND: "NotFound",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "ResourceExhausted",
    grpc.StatusCode.UNAVAILABLE: "Unavailable",
    grpc.StatusCode.DEADLINE_EXCEEDED: "DeadlineExceeded",
    grpc.StatusCode.CANCELLED: "Cancelled",
    grpc.StatusCode.UNAUTHENTICATED: "Unauthenticated",
    grpc.StatusCode.PERMISSION_DENIED: "PermissionDenied",
    grpc.StatusCode.UNIMPLEMENTED: "Unimplemented",
    grpc.StatusCode.INTERNAL: "Internal",
    grpc.StatusCode.UNKNOWN: "TranslaneError",
    grpc.StatusCode.DATA_LOSS: "TranslaneError",
}


@pytest.mark.parametrize(("code", "kind"), CODES.items(), ids=lambda value: getattr(value, "name", value))
def test_every_status_has_its_exception(server: FakeServer, connect, code, kind: str):
    client = connect(server.address, retry=translane.RetryPolicy(attempts=1))
    server.script = deque([fails(code, "what happened", reason("SOME_REASON")), fails(code, "what happened")])
    with pytest.raises(TranslaneError) as ours:
        client.translate("a")
    assert type(ours.value) is getattr(translane, kind)
    assert (str(ours.value), ours.value.code, ours.value.reason) == ("what happened", code, "SOME_REASON")
    assert (ours.value.field, ours.value.violations, ours.value.retry_after) == (None, (), None)
    with pytest.raises(TranslaneError) as foreign:
        client.translate("a")
    if code is grpc.StatusCode.CANCELLED:
        assert type(foreign.value) is Unavailable
        assert str(foreign.value) == "the server cancelled the call; it may be shutting down"
    else:
        assert type(foreign.value) is type(ours.value)
        assert server.address in str(foreign.value)
    assert foreign.value.reason == ""


def test_all_violations_arrive_in_order(server: FakeServer, connect):
    server.always = refuses(("texts[3]", "too long"), ("options.beam_size", "at most 1"))
    with pytest.raises(InvalidArgument) as caught:
        connect(server.address).translate("a")
    assert caught.value.field == "texts[3]"
    assert caught.value.violations == (
        FieldViolation("texts[3]", "too long"),
        FieldViolation("options.beam_size", "at most 1"),
    )


def test_a_reason_of_another_domain_is_not_ours(server: FakeServer, connect):
    server.always = fails(grpc.StatusCode.NOT_FOUND, "x", reason("ROUTE", domain="proxy.example"))
    with pytest.raises(translane.NotFound) as caught:
        connect(server.address).translate("a")
    assert caught.value.reason == ""
    assert str(caught.value) == f"{server.address} answered NOT_FOUND: x"


class FakeFailure(grpc.RpcError):
    def __init__(self, code, details=None, metadata=()):
        self._status = code, details, metadata

    def code(self):
        return self._status[0]

    def details(self):
        return self._status[1]

    def trailing_metadata(self):
        return self._status[2]


@pytest.mark.parametrize("payload", [b"\xff\xff", b"\x08\x05"], ids=["garbage", "of another code"])
def test_unsound_details_are_ignored(payload: bytes):
    failure = FakeFailure(grpc.StatusCode.INTERNAL, "x", (("grpc-status-details-bin", payload),))
    assert str(exception_from(failure, connection=Connection("here"))) == "here:50051 answered INTERNAL: x"


@pytest.mark.parametrize(
    ("details", "cause"),
    [
        ("failed to connect; last error: UNKNOWN: ipv4:1.2.3.4:1: Connection refused (111)", "connection refused"),
        ("errors resolving x:5: [field:hostname Domain name not found]", "the host name is not known"),
        ("Tls handshake failed (TSI_PROTOCOL_FAILURE): SSL_ERROR_SSL", "the TLS handshake failed"),
        ("Socket closed", "the connection was lost"),
        ("Cancelling all calls", "the connection was lost"),
        ("Failed parsing HTTP/2 (Expected SETTINGS frame)", "it does not speak gRPC"),
        ("upstream is away", "upstream is away"),
        (None, "no reason given"),
    ],
)
def test_why_a_server_cannot_be_reached_is_told_briefly(details, cause: str):
    error = exception_from(FakeFailure(grpc.StatusCode.UNAVAILABLE, details), connection=Connection("here:1"))
    assert isinstance(error, Unavailable)
    assert str(error) == f"cannot reach here:1: {cause}"


@pytest.mark.parametrize("number", [0, 2])
def test_an_answer_that_a_proxy_breaks_off_may_be_asked_for_again(number: int):
    failure = FakeFailure(grpc.StatusCode.INTERNAL, f"Received RST_STREAM with error code {number}")
    error = exception_from(failure, connection=Connection("here"))
    assert isinstance(error, Unavailable)
    assert RetryPolicy().retries(error, attempt=1)
    assert str(error) == "here:50051 broke off its answer; a server behind it may be gone"
    protocol_error = FakeFailure(grpc.StatusCode.INTERNAL, "Received RST_STREAM with error code 1")
    assert isinstance(exception_from(protocol_error, connection=Connection("here")), Internal)


def test_an_error_without_code_or_details_is_told():
    assert str(exception_from(FakeFailure(None), connection=Connection("here"))) == "here:50051 answered UNKNOWN"


def test_errors_can_be_pickled(server: FakeServer, connect):
    server.always = fails(
        grpc.StatusCode.RESOURCE_EXHAUSTED, "full", reason("QUEUE_FULL"), retry_in(1), bad_fields(("texts", "x"))
    )
    with pytest.raises(QueueFull) as caught:
        connect(server.address, retry=translane.RetryPolicy(attempts=1)).translate("a")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert type(copy) is QueueFull
    assert str(copy) == "full"
    assert vars(copy) == vars(caught.value)
    assert copy.field == "texts"
