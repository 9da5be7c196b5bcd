"""Attempts, pauses and deadlines, on fake time; and from a status to an exception."""

import pickle
from collections import deque
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

import translane
from fakes.translation_server import (
    PATIENCE,
    QUEUE_FULL,
    UNAVAILABLE,
    bad_fields,
    fails,
    reason,
    refuses,
    retry_in,
)
from translane import (
    Connection,
    DeadlineExceeded,
    Internal,
    InvalidArgument,
    QueueFull,
    ResourceExhausted,
    RetryPolicy,
    TranslaneError,
    Unauthenticated,
    Unavailable,
)
from translane_client._status import exception_from


def test_pauses_grow_to_the_maximum(server, connect, time):
    server.script = deque([UNAVAILABLE] * 5)
    policy = RetryPolicy(attempts=6, initial=1.0, maximum=5.0, multiplier=2.0)
    assert connect(server.address, retry=policy).translate("a").text == "<a>"
    assert time.pauses == [0.5, 1.0, 2.0, 2.5, 2.5]  # half of 1, 2, 4, 5, 5: the random number is 0.5


def test_the_servers_wish_is_added(server, connect, time):
    server.script = deque([QUEUE_FULL, QUEUE_FULL])
    assert connect(server.address, retry=RetryPolicy(initial=1.0)).translate("a").text == "<a>"
    assert time.pauses == [3.0, 3.5]


@pytest.mark.parametrize(
    ("behaviour", "kind"),
    [
        (fails(grpc.StatusCode.RESOURCE_EXHAUSTED, "message larger than max"), ResourceExhausted),
        (refuses(("texts[0]", "no")), InvalidArgument),
        (fails(grpc.StatusCode.DEADLINE_EXCEEDED, "late", reason("DEADLINE_EXCEEDED")), DeadlineExceeded),
        (fails(grpc.StatusCode.UNAUTHENTICATED, "who?", reason("UNKNOWN_KEY")), Unauthenticated),
    ],
)
def test_what_will_not_change_is_not_tried_again(server, connect, time, behaviour, kind):
    server.always = behaviour
    with pytest.raises(kind) as caught:
        connect(server.address).translate("a")
    assert type(caught.value) is kind
    assert len(server.requests) == 1
    assert not time.pauses


def test_the_default_bridges_a_restart():
    policy = RetryPolicy()
    pauses = [policy.pause(Unavailable("x"), attempt, 0.5) for attempt in range(1, policy.attempts)]
    assert sum(pauses) > 3


def test_a_list_has_one_deadline_and_an_iteration_one_for_each_request(server, connect, time):
    server.script = deque([QUEUE_FULL, QUEUE_FULL])
    client = connect(server.address, batch_size=1, concurrency=1, timeout=20.0, retry=RetryPolicy(initial=0.0))
    client.translate(["a", "b"])
    list(client.translate_iter(["c", "d"]))
    # Of "a" three attempts, each with what is left, then "b"; "c" and "d" have all of the time.
    for seen, left in zip(server.time_remaining, [20.0, 17.5, 15.0, 15.0, 20.0, 20.0], strict=True):
        assert left - 1.5 < seen <= left + 0.1  # the server's own clock is the real one


def test_no_answer_is_a_deadline_exceeded(server, connect):
    server.always = server.hang
    with pytest.raises(DeadlineExceeded, match=f"^no answer from {server.address} before the deadline$"):
        connect(server.address).translate("a", timeout=0.2)
    assert server.cancelled.wait(PATIENCE)


def test_no_attempt_begins_after_the_deadline(server, connect, time):
    server.always = QUEUE_FULL
    time.oversleeps = 1.0
    with pytest.raises(DeadlineExceeded):
        connect(server.address, retry=RetryPolicy(initial=0.0)).translate("a", timeout=3.0)
    assert time.pauses == [2.5]
    assert len(server.requests) == 1


def test_a_refused_connection_is_tried_again(connect, refused, time):
    with pytest.raises(Unavailable, match="connection refused"):
        connect(refused, retry=RetryPolicy(attempts=3)).translate("a")
    assert len(time.pauses) == 2


@pytest.mark.parametrize(
    "settings",
    [{"attempts": 0}, {"initial": -1.0}, {"initial": 9.0}, {"multiplier": 0.5}, {"multiplier": float("nan")}],
)
def test_a_policy_that_makes_no_sense_is_refused(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        RetryPolicy(**settings)


def test_waiting_for_room_leaves_the_attempts_for_failures(server, connect, time):
    server.script = deque([QUEUE_FULL] * 3 + [UNAVAILABLE] * 2)
    client = connect(server.address, batch_size=1, retry=RetryPolicy(attempts=2))
    with pytest.raises(Unavailable):
        list(client.translate_iter(["a"]))
    assert len(server.requests) == 5


def test_an_iteration_waits_for_room_up_to_its_deadline_and_begins_no_pause_past_it(server, connect, time):
    server.always = QUEUE_FULL
    client = connect(server.address, batch_size=1, retry=RetryPolicy(initial=0.0))
    with pytest.raises(QueueFull):
        list(client.translate_iter(["a"], timeout=30.0))
    assert time.pauses == [2.5] * 11


@pytest.mark.parametrize("timeout", [None, 1e10, 1e300, 10**400])
def test_no_timeout_and_a_huge_one_are_no_deadline(server, connect, timeout):
    assert connect(server.address, timeout=timeout).translate("a").text == "<a>"
    assert server.time_remaining[0] > 1e6


def test_no_pause_overflows(server, connect, time):
    full = fails(grpc.StatusCode.RESOURCE_EXHAUSTED, "full", reason("QUEUE_FULL"), retry_in(300_000_000_000))
    server.script = deque([full])
    policy = RetryPolicy(initial=1e300, maximum=float("inf"), longest_wait=float("inf"))
    assert connect(server.address, retry=policy).translate("a").text == "<a>"
    assert 0 < time.pauses[0] <= 2 * 86_400


@pytest.mark.parametrize("patient", [False, True])
def test_a_server_cannot_ask_to_wait_for_hours(server, connect, time, patient):
    server.script = deque([fails(grpc.StatusCode.RESOURCE_EXHAUSTED, "full", reason("QUEUE_FULL"), retry_in(61))])
    client = connect(server.address, batch_size=1)
    with pytest.raises(QueueFull) as caught:
        list(client.translate_iter(["a"])) if patient else client.translate("a")
    assert caught.value.retry_after == 61
    assert time.pauses == []
    with pytest.raises(ValueError, match="longest_wait"):
        RetryPolicy(longest_wait=-1.0)


# From a status to an exception.


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
def test_every_status_has_its_exception(server, connect, code, kind):
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


def test_a_reason_of_another_domain_is_not_ours(server, connect):
    server.always = fails(grpc.StatusCode.NOT_FOUND, "x", reason("ROUTE", domain="proxy.example"))
    with pytest.raises(translane.NotFound) as caught:
        connect(server.address).translate("a")
    assert caught.value.reason == ""
    assert str(caught.value) == f"{server.address} answered NOT_FOUND: x"


UNREACHABLE = {
    "failed to connect; last error: UNKNOWN: ipv4:1.2.3.4:1: Connection refused (111)": "connection refused",
    "errors resolving x:5: [field:hostname Domain name not found]": "the host name is not known",
    "Tls handshake failed (TSI_PROTOCOL_FAILURE): SSL_ERROR_SSL": "the TLS handshake failed",
    "Socket closed": "the connection was lost",
    "Cancelling all calls": "the connection was lost",
    "Failed parsing HTTP/2 (Expected SETTINGS frame)": "it does not speak gRPC",
    "upstream is away": "upstream is away",
    None: "no reason given",
}
RESET = "Received RST_STREAM with error code"


@pytest.mark.parametrize(
    ("code", "details", "payload", "kind", "message"),
    [
        *(("UNAVAILABLE", each, b"", Unavailable, f"cannot reach here:1: {UNREACHABLE[each]}") for each in UNREACHABLE),
        # A proxy breaks off an answer, which may be asked for again; or the protocol is broken.
        ("INTERNAL", f"{RESET} 0", b"", Unavailable, "here:1 broke off its answer; a server behind it may be gone"),
        ("INTERNAL", f"{RESET} 2", b"", Unavailable, "here:1 broke off its answer; a server behind it may be gone"),
        ("INTERNAL", f"{RESET} 1", b"", Internal, f"here:1 answered INTERNAL: {RESET} 1"),
        # Details of the richer error model that are garbage, or of another code.
        ("INTERNAL", "x", b"\xff\xff", Internal, "here:1 answered INTERNAL: x"),
        ("INTERNAL", "x", b"\x08\x05", Internal, "here:1 answered INTERNAL: x"),
        ("", None, b"", TranslaneError, "here:1 answered UNKNOWN"),
    ],
)
def test_what_is_not_the_servers_own_error_is_told_briefly(code, details, payload, kind, message):
    failure: Any = SimpleNamespace(
        code=lambda: grpc.StatusCode[code] if code else None,
        details=lambda: details,
        trailing_metadata=lambda: (("grpc-status-details-bin", payload),) if payload else (),
    )
    error = exception_from(failure, connection=Connection("here:1"))
    assert (type(error), str(error)) == (kind, message)


def test_errors_can_be_pickled(server, connect):
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
