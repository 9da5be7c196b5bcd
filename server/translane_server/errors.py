"""The errors of the server, as one tree.

::

    ServerError
    ├── StartupError              exit code 1, one sentence on stderr
    │   ├── SettingsError           a flag, environment variable or settings file is wrong (exit code 2)
    │   ├── BundleError             the model bundle is missing, corrupted or unsupported
    │   └── DeviceError             the requested device cannot run the model
    └── RequestError              sent to the caller; `reason` is stable and machine-readable
        ├── InvalidRequestError     a field of the request is wrong
        ├── ModelNotFoundError      no model of that name is loaded
        ├── QueueFullError          too many sentences are waiting; try again after `retry_after`
        ├── UnavailableError        starting or draining; try again after `retry_after`
        └── EngineError             decoding failed; a bug or a broken device
"""

from __future__ import annotations

from dataclasses import dataclass


class ServerError(Exception):
    """Base of all errors that this package raises on purpose."""


class StartupError(ServerError):
    """The server cannot start. The message is one sentence for the operator."""

    exit_code = 1


class SettingsError(StartupError):
    """A setting is unknown or malformed, or it contradicts another setting."""

    exit_code = 2


class BundleError(StartupError):
    """The model bundle is missing, corrupted, tampered with, or of an unsupported version."""


class DeviceError(StartupError):
    """The requested device is missing or cannot run this bundle."""


@dataclass(frozen=True)
class FieldViolation:
    """One invalid field: its path in the request (``texts[3]``, ``options.max_length``) and a description."""

    field: str
    description: str


class RequestError(ServerError):
    """A request failed. `reason` is stable: clients may switch on it."""

    reason = "INTERNAL"


class InvalidRequestError(RequestError):
    """One or more fields of the request are invalid."""

    reason = "INVALID_FIELD"

    def __init__(self, *violations: FieldViolation) -> None:
        self.violations = violations
        super().__init__("; ".join(f"{v.field}: {v.description}" for v in violations))


class ModelNotFoundError(RequestError):
    """No loaded model has the requested name."""

    reason = "MODEL_NOT_FOUND"


class _RetryableError(RequestError):
    """The server refuses the request for now. The caller may try again after `retry_after` [seconds]."""

    def __init__(self, message: str, retry_after: float) -> None:
        self.retry_after = retry_after
        super().__init__(message)


class QueueFullError(_RetryableError):
    """The request would exceed the limit of waiting sentences."""

    reason = "QUEUE_FULL"


class UnavailableError(_RetryableError):
    """The server is starting up, or draining before it stops."""

    reason = "UNAVAILABLE"


class EngineError(RequestError):
    """Decoding failed, and not because of the request."""

    reason = "ENGINE_FAILURE"


def first_line(error: Exception) -> str:
    """The first line of an exception's message; the name of its type if the message is empty."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__
