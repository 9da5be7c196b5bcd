"""Turns the server's errors into gRPC statuses of the richer error model (https://google.aip.dev/193).

Every status has an ErrorInfo with a stable reason. A BadRequest names wrong fields. A RetryInfo says when to try again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from grpc import StatusCode

from translane_server.core import errors

DOMAIN = "translane"

CODES: Mapping[type[errors.RequestError], StatusCode] = {
    errors.InvalidRequestError: StatusCode.INVALID_ARGUMENT,
    errors.RequestTooLongError: StatusCode.INVALID_ARGUMENT,
    errors.ModelNotFoundError: StatusCode.NOT_FOUND,
    errors.ModelRefusedError: StatusCode.FAILED_PRECONDITION,
    errors.UnknownMethodError: StatusCode.UNIMPLEMENTED,
    errors.UnknownServiceError: StatusCode.NOT_FOUND,
    errors.MissingKeyError: StatusCode.UNAUTHENTICATED,
    errors.UnknownKeyError: StatusCode.UNAUTHENTICATED,
    errors.ExpiredKeyError: StatusCode.UNAUTHENTICATED,
    errors.MessageTooLargeError: StatusCode.RESOURCE_EXHAUSTED,
    errors.MessageTimeoutError: StatusCode.DEADLINE_EXCEEDED,
    errors.RequestTimeoutError: StatusCode.DEADLINE_EXCEEDED,
    errors.TooManyCallsError: StatusCode.RESOURCE_EXHAUSTED,
    errors.TooManyBytesError: StatusCode.RESOURCE_EXHAUSTED,
    errors.TooManySentencesError: StatusCode.RESOURCE_EXHAUSTED,
    errors.SentenceRateError: StatusCode.RESOURCE_EXHAUSTED,
    errors.QueueFullError: StatusCode.RESOURCE_EXHAUSTED,
    errors.UnavailableError: StatusCode.UNAVAILABLE,
    errors.EngineError: StatusCode.INTERNAL,
    errors.PoisonedError: StatusCode.INTERNAL,
}

INTERNAL = "INTERNAL"

# A status travels in HTTP/2 headers, and peers refuse headers beyond 8 KiB. So only the first violations are listed,
# and messages are cut. A character takes up to 16 bytes on the wire.
_MAX_VIOLATIONS = 10
_MAX_MESSAGE = 160
_MAX_DESCRIPTION = 100


def status_of(error: errors.RequestError) -> status_pb2.Status:
    """Return the status for `error`."""
    details: list[Message] = []
    if isinstance(error, errors.InvalidRequestError):
        listed = [
            error_details_pb2.BadRequest.FieldViolation(
                field=violation.field, description=_shortened(violation.description, _MAX_DESCRIPTION)
            )
            for violation in error.violations[:_MAX_VIOLATIONS]
        ]
        details.append(error_details_pb2.BadRequest(field_violations=listed))
    if isinstance(error, errors.RetryableError):
        delay = Duration()
        delay.FromNanoseconds(round(error.retry_after * 1e9))
        details.append(error_details_pb2.RetryInfo(retry_delay=delay))
    return _status(CODES[type(error)], str(error), error.reason, details)


def internal() -> status_pb2.Status:
    """Return the status of a bug. Only the server's log has the details."""
    return _status(StatusCode.INTERNAL, "internal error; the server's log has the details", INTERNAL)


def _status(code: StatusCode, message: str, reason: str, details: Sequence[Message] = ()) -> status_pb2.Status:
    info = error_details_pb2.ErrorInfo(reason=reason, domain=DOMAIN)
    packed = [AnyMessage() for _ in range(1 + len(details))]
    for target, detail in zip(packed, (info, *details), strict=True):
        target.Pack(detail)
    number: int = code.value[0]
    return status_pb2.Status(code=number, message=_shortened(message, _MAX_MESSAGE), details=packed)


def _shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
