"""Everything a call can fail with.

    TranslaneError              any status below, and those without a class of their own
    ├── InvalidArgument         the request is wrong; `field` names the place
    ├── NotFound                no such model
    ├── ResourceExhausted       a limit was hit, such as the size of a message
    │   └── QueueFull           the server has no room now; `retry_after` says when to come back
    ├── Unavailable             no connection, or the server is starting or draining
    ├── DeadlineExceeded        no answer within `timeout`
    ├── Cancelled               the call was cancelled, by either side
    ├── Unauthenticated         the server wants credentials
    ├── PermissionDenied        the credentials do not allow this
    ├── Unimplemented           the server does not offer this
    └── Internal                the server, or what it answered, is broken

Wrong types of arguments are programming mistakes and raise TypeError or ValueError.
"""

# ruff: noqa: N818 - the classes are named after the gRPC status codes they stand for

from __future__ import annotations

from dataclasses import dataclass

import grpc


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """One thing that is wrong with a request."""

    field: str
    """Path of the field, such as "texts[3]" or "options.beam_size"."""
    description: str


class TranslaneError(Exception):
    """A call that failed. `str()` is one sentence for people; the attributes are for programs."""

    code: grpc.StatusCode = grpc.StatusCode.UNKNOWN
    """The gRPC status."""

    def __init__(
        self,
        message: str,
        *,
        code: grpc.StatusCode | None = None,
        reason: str = "",
        violations: tuple[FieldViolation, ...] = (),
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code
        self.reason = reason
        """The server's stable name of what went wrong (ErrorInfo.reason); empty where it gave none."""
        self.violations = violations
        """Every field the server complains about."""
        self.retry_after = retry_after
        """Seconds the server asks to wait before another attempt (RetryInfo)."""

    @property
    def field(self) -> str | None:
        """The first field the server complains about, such as "texts[3]"; None where it names none."""
        return self.violations[0].field if self.violations else None


class InvalidArgument(TranslaneError):
    """The request is wrong and will stay so; `field` and `violations` name the places."""

    code = grpc.StatusCode.INVALID_ARGUMENT


class NotFound(TranslaneError):
    """The server has no model of that name."""

    code = grpc.StatusCode.NOT_FOUND


class ResourceExhausted(TranslaneError):
    """A limit was hit. Coming back later helps only where it is a QueueFull."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED


class QueueFull(ResourceExhausted):
    """As many sentences wait as the server allows; `retry_after` says when to come back."""


class Unavailable(TranslaneError):
    """No connection to the server, or it is starting or draining."""

    code = grpc.StatusCode.UNAVAILABLE


class DeadlineExceeded(TranslaneError):
    """There was no answer within `timeout`."""

    code = grpc.StatusCode.DEADLINE_EXCEEDED


class Cancelled(TranslaneError):
    """The call was cancelled, by either side."""

    code = grpc.StatusCode.CANCELLED


class Unauthenticated(TranslaneError):
    """The server wants credentials it did not get."""

    code = grpc.StatusCode.UNAUTHENTICATED


class PermissionDenied(TranslaneError):
    """The credentials do not allow this call."""

    code = grpc.StatusCode.PERMISSION_DENIED


class Unimplemented(TranslaneError):
    """The server does not offer this call."""

    code = grpc.StatusCode.UNIMPLEMENTED


class Internal(TranslaneError):
    """The server, or what it answered, is broken."""

    code = grpc.StatusCode.INTERNAL
