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

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

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


_CLASSES: dict[grpc.StatusCode, type[TranslaneError]] = {kind.code: kind for kind in TranslaneError.__subclasses__()}


def error_of(
    code: grpc.StatusCode,
    message: str,
    *,
    reason: str = "",
    violations: Iterable[tuple[str, str]] = (),
    retry_after: float | None = None,
    offset: int = 0,
) -> TranslaneError:
    """The error of a status.

    Args:
        code: The status.
        message: A sentence for people.
        reason: The server's stable name of the error; empty where the server gave none.
        violations: The fields at fault, each with its description.
        retry_after: Seconds to wait before another attempt, if the server asks for it.
        offset: Index of the request's first item in the caller's list. The error counts "texts[i]" and "inputs[i]" in
            the caller's list.
    """

    def recounted(text: str) -> str:
        return re.sub(r"\b(texts|inputs)\[(\d+)\]", lambda match: f"{match[1]}[{int(match[2]) + offset}]", text)

    kind = _CLASSES.get(code, TranslaneError)
    if kind is ResourceExhausted and retry_after is not None:
        kind = QueueFull
    return kind(
        recounted(message),
        code=code,
        reason=reason,
        violations=tuple([FieldViolation(recounted(field), recounted(text)) for field, text in violations]),
        retry_after=None if retry_after is None else max(0.0, retry_after),
    )


def checked_items(items: object) -> None:
    """Refuse one text in the place of many items. TypeError: it is a str, whose characters would be the items."""
    if isinstance(items, str):
        raise TypeError("give a list of texts or pairs; one text is for translate()")


def checked_text(text: Any, field: str) -> str:
    """A text that can travel.

    Raises:
        TypeError: it is no str.
        InvalidArgument: it holds a lone surrogate, which no encoding of Unicode can carry.
    """
    if not isinstance(text, str):
        raise TypeError(f"{field} must be a str, not {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        described = f"not valid Unicode: {error.reason}"
        invalid = FieldViolation(field, described)
        raise InvalidArgument(f"{field} is {described}", reason="INVALID_FIELD", violations=(invalid,)) from error
    return text


def checked_document(content: Any, mime_type: Any, replace_translations: Any) -> tuple[bytes, str, bool]:
    """What a request has beside options; raises as `checked_text` does, and TypeError for what is of another type."""
    if not isinstance(content, bytes):
        raise TypeError(f"content must be bytes, not {type(content).__name__}")
    if not isinstance(replace_translations, bool):
        raise TypeError(f"replace_translations must be a bool, not {replace_translations!r}")
    return content, checked_text(mime_type, "mime_type"), replace_translations


def checked_pair(pair: Any, field: str) -> tuple[str, str]:
    """A pair of a text and a translation of it; raises as `checked_text` does, and TypeError if it is no pair."""
    if not is_pair(pair):
        raise TypeError(f"{field} must be a pair of source and target, not {pair!r}")
    return checked_text(pair[0], f"{field}.source"), checked_text(pair[1], f"{field}.target")


def is_pair(pair: Any) -> bool:
    """Whether this is a sequence of two. A str is none."""
    return isinstance(pair, Sequence) and not isinstance(pair, str | bytes) and len(pair) == 2
