"""The errors that the server raises on purpose.

::

    StartupError              exit code 1, one sentence on stderr
    ├── SettingsError           a flag, environment variable or settings file is wrong (exit code 2)
    ├── BundleError             the model bundle is missing, corrupted or unsupported
    ├── DeviceError             the requested device cannot run the model
    ├── GlossaryError           a stored glossary cannot be read (exit code 2)
    ├── CertificateError        a certificate or its key cannot be used
    └── KeysError               the file of callers' keys cannot be read
    RequestError              sent to the caller; `reason` is stable and machine-readable
    ├── InvalidRequestError     a field of the request is wrong
    │   └── RequestTooLongError its texts have too many sentences for one request
    ├── ModelNotFoundError      there is no model of that name, or none for those languages
    ├── ModelRefusedError       a model cannot be loaded; for the operator who asked for it
    ├── UnknownMethodError      the protocol does not have the method
    ├── UnknownServiceError     the server has no service of that name, whose health is asked for
    ├── MissingKeyError         the call has no key
    ├── UnknownKeyError         the server does not know the call's key
    ├── ExpiredKeyError         the call's key has expired
    ├── MessageTooLargeError    the message of a call is too large
    ├── MessageTimeoutError     the message of a call does not come
    ├── RequestTimeoutError     the call takes longer than any call may
    ├── TooManyCallsError       too many calls are open; try again after `retry_after`
    ├── TooManyBytesError       the messages of open calls are too large together; try again after `retry_after`
    ├── TooManySentencesError   too many sentences of this key are in flight; try again after `retry_after`
    ├── SentenceRateError       this key sends too many sentences a second; try again after `retry_after`
    ├── QueueFullError          too many sentences are waiting; try again after `retry_after`
    ├── UnavailableError        not loaded, starting or shutting down; try again after `retry_after`
    ├── EngineError             decoding failed; a bug or a broken device
    └── PoisonedError           a sentence ends every replica that decodes it
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from translane.command_error import CommandError
from translane_server.core.terminal import printable

# How long a caller should wait before it tries again, while a server starts, or another server takes over from one that
# shuts down [seconds].
_RETRY_STARTING = _RETRY_SHUTTING_DOWN = 1.0

_NO_MEMORY = re.compile(
    "not enough memory|(cannot|can't) allocate memory|failed to allocate memory|unable to mmap|bad_alloc"
    "|can't start new thread|failed to map segment|resource temporarily unavailable",
    re.IGNORECASE,
)


class StartupError(CommandError):
    """The server cannot start. The message is one sentence for the operator, fit for a terminal."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))  # it may quote a file


class SettingsError(StartupError):
    """A setting is unknown or malformed, or it contradicts another setting."""

    exit_code = 2


class BundleError(StartupError):
    """The model bundle is missing, corrupted, tampered with, or of an unsupported version."""


class DeviceError(StartupError):
    """The requested device is missing or cannot run this bundle."""


class GlossaryError(StartupError):
    """A stored glossary cannot be read. While the server runs, the version before goes on."""

    exit_code = 2


class CertificateError(StartupError):
    """A certificate or its key cannot be used. While the server runs, the certificate before goes on."""


class KeysError(StartupError):
    """The file of callers' keys cannot be read. While the server runs, the keys before go on."""


@dataclass(frozen=True)
class FieldViolation:
    """One invalid field: its path in the request (``texts[3]``, ``options.max_length``) and a description."""

    field: str
    description: str


class RequestError(Exception):
    """A request failed. `reason` is stable: clients may switch on it. docs/server.md shows the docstrings below."""

    reason = "INTERNAL"


class InvalidRequestError(RequestError):
    """A field of the request is wrong, or the message cannot be parsed.

    Such fields are too many texts, a text of too many tokens, an option out of its range or beside one it excludes,
    a language that the model does not have. Texts that take too long to read are wrong, too: their limit counts
    processor time, so a retry would exceed it again.
    """

    reason = "INVALID_FIELD"

    def __init__(self, *violations: FieldViolation) -> None:
        self.violations = violations
        super().__init__("; ".join(f"{v.field}: {v.description}" for v in violations))


class RequestTooLongError(InvalidRequestError):
    """The texts of a request have more sentences than may wait at one time. Fewer of them in a request may be accepted.

    The Python client then sends the request in parts.
    """

    reason = "REQUEST_TOO_LONG"


class ModelNotFoundError(RequestError):
    """No model has the name that the request asks for, or its languages."""

    reason = "MODEL_NOT_FOUND"


class ModelRefusedError(RequestError):
    """`ModelService` alone: the model cannot be loaded. What was loaded goes on."""

    reason = "MODEL_REFUSED"


class UnknownMethodError(RequestError):
    """The protocol does not have the method."""

    reason = "METHOD_NOT_FOUND"


class UnknownServiceError(RequestError):
    """Health checks alone: the server has no service of that name."""

    reason = "SERVICE_NOT_FOUND"


class MissingKeyError(RequestError):
    """The server has `keys_file`, and the call has no `authorization: Bearer` with a key."""

    reason = "MISSING_KEY"


class UnknownKeyError(RequestError):
    """The key of the call is not in the file of keys."""

    reason = "UNKNOWN_KEY"


class ExpiredKeyError(RequestError):
    """The key of the call has expired; the message names its holder and the time."""

    reason = "EXPIRED_KEY"


class MessageTooLargeError(RequestError):
    """The message is larger than `max_message_bytes`; a retry does not help."""

    reason = "MESSAGE_TOO_LARGE"


class MessageTimeoutError(RequestError):
    """The message of the call did not come within `message_timeout`."""

    reason = "MESSAGE_TIMEOUT"


class RequestTimeoutError(RequestError):
    """The call was not answered within `request_timeout`, whatever its deadline; over HTTP, or within its deadline.

    Of a document, the time counts from its last progress.
    """

    reason = "REQUEST_TIMEOUT"


class RetryableError(RequestError):
    """The server refuses the request for now. The caller may try again after `retry_after` [seconds]."""

    def __init__(self, message: str, retry_after: float) -> None:
        self.retry_after = retry_after
        super().__init__(message)


class QueueFullError(RetryableError):
    """More sentences would wait than `max_queue_size`, or than the caller's part of it.

    Or too many requests wait to be read, or for their model.
    """

    reason = "QUEUE_FULL"


class TooManyCallsError(RetryableError):
    """More calls would be open than `max_calls`, or than the caller's share of it.

    Or the message of the call had not come when many newer calls waited for theirs.
    """

    reason = "TOO_MANY_CALLS"


class TooManyBytesError(RetryableError):
    """The messages of open calls would be larger than `max_bytes_in_flight`, or than the caller's share of it."""

    reason = "TOO_MANY_BYTES"


class TooManySentencesError(RetryableError):
    """The sentences of open calls with the holder's keys would be more than its `sentences_in_flight`."""

    reason = "TOO_MANY_SENTENCES"


class SentenceRateError(RetryableError):
    """The holder's keys have sent more than its `sentences_per_second`.

    The RetryInfo says when that much time has passed.
    """

    reason = "TOO_MANY_SENTENCES_PER_SECOND"


class UnavailableError(RetryableError):
    """The model is unloaded or cannot be loaded. Or a step or a call has no memory. Or the server starts or ends."""

    reason = "UNAVAILABLE"


class EngineError(RequestError):
    """A step of a sentence failed twice; or a stream was decoded again, and differs from what was sent already."""

    reason = "ENGINE_FAILURE"


class PoisonedError(RequestError):
    """A sentence has ended two replicas that decoded nothing else. It is not decoded again; do not retry it."""

    reason = "POISONED"


def starting() -> UnavailableError:
    """The error of a call that a server refuses because it has not started yet."""
    return UnavailableError("the server is starting", retry_after=_RETRY_STARTING)


def shutting_down() -> UnavailableError:
    """The error of a call that a server refuses, or does not finish, because it shuts down."""
    return UnavailableError("the server is shutting down", retry_after=_RETRY_SHUTTING_DOWN)


def first_line(error: Exception) -> str:
    """The first line of an exception's message; the name of its type if the message is empty."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def is_about_memory(error: BaseException) -> bool:
    """Whether an error means that there is no memory; PyTorch, ONNX Runtime and C++ have no type of error for it."""
    return isinstance(error, MemoryError) or bool(_NO_MEMORY.search(str(error)))
