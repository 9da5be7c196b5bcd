"""The errors of a call.

    TranslaneError              any status, also one without a class of its own
    ├── InvalidArgument         the request is wrong; `field` names the place
    ├── NotFound                the server has no such model
    ├── ResourceExhausted       the request hit a limit, such as the size of a message
    │   └── QueueFull           the server has no room now; `retry_after` says when to come back
    ├── Unavailable             there is no connection, or the server is starting or draining
    ├── DeadlineExceeded        no answer came within `timeout`
    ├── Cancelled               either side cancelled the call
    ├── Unauthenticated         the server wants credentials
    ├── PermissionDenied        the credentials do not allow the call
    ├── Unimplemented           the server does not offer the call
    └── Internal                the server or its answer is broken

An argument of a wrong type or range is a mistake of the program and raises TypeError or ValueError.
"""

# ruff: noqa: N818 - the classes have the names of gRPC's status codes

from __future__ import annotations

from dataclasses import dataclass

import grpc


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """One mistake in a request."""

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
        """The server's stable name of the error (ErrorInfo.reason); empty where the server gave none."""
        self.violations = violations
        """Every field at fault."""
        self.retry_after = retry_after
        """Seconds that the server asks to wait before another attempt (RetryInfo); None where it does not ask."""

    @property
    def field(self) -> str | None:
        """The first field at fault, such as "texts[3]"; None where the server names no field."""
        return self.violations[0].field if self.violations else None


class InvalidArgument(TranslaneError):
    """The request is wrong, and a retry does not help; `field` and `violations` name the places."""

    code = grpc.StatusCode.INVALID_ARGUMENT


class NotFound(TranslaneError):
    """The server has no model of that name."""

    code = grpc.StatusCode.NOT_FOUND


class ResourceExhausted(TranslaneError):
    """The request hit a limit. A retry helps only where the error is a QueueFull."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED


class QueueFull(ResourceExhausted):
    """The server's queue is full; `retry_after` says when to come back."""


class Unavailable(TranslaneError):
    """There is no connection to the server, or the server is starting or draining."""

    code = grpc.StatusCode.UNAVAILABLE


class DeadlineExceeded(TranslaneError):
    """No answer came within `timeout`."""

    code = grpc.StatusCode.DEADLINE_EXCEEDED


class Cancelled(TranslaneError):
    """Either side cancelled the call."""

    code = grpc.StatusCode.CANCELLED


class Unauthenticated(TranslaneError):
    """The server wants credentials, and the client sent none or wrong ones."""

    code = grpc.StatusCode.UNAUTHENTICATED


class PermissionDenied(TranslaneError):
    """The credentials do not allow the call."""

    code = grpc.StatusCode.PERMISSION_DENIED


class Unimplemented(TranslaneError):
    """The server does not offer the call."""

    code = grpc.StatusCode.UNIMPLEMENTED


class Internal(TranslaneError):
    """The server or its answer is broken."""

    code = grpc.StatusCode.INTERNAL
