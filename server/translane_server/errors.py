"""Everything the server refuses or fails at, as one tree.

::

    ServerError
    ├── StartupError              exit code 1, one sentence on stderr
    │   ├── SettingsError           a flag, environment variable or settings file is wrong (exit code 2)
    │   ├── BundleError             the model bundle is missing, corrupted or unsupported
    │   └── DeviceError             the device asked for cannot run the model
    └── RequestError              answered to the caller; `reason` is stable and machine-readable
        ├── InvalidRequestError     a field of the request is wrong
        ├── ModelNotFoundError      no model of that name is loaded
        ├── QueueFullError          too many sentences are waiting; try again after `retry_after`
        ├── UnavailableError        starting or draining; try again after `retry_after`
        └── EngineError             decoding failed; a bug or a broken device
"""

from __future__ import annotations

from dataclasses import dataclass


class ServerError(Exception):
    """Base of every error this package raises on purpose."""


class StartupError(ServerError):
    """The server cannot start; the message is one sentence for its operator."""

    exit_code = 1


class SettingsError(StartupError):
    """A setting is unknown, malformed or contradicts another one."""

    exit_code = 2


class BundleError(StartupError):
    """The model bundle is missing, corrupted, tampered with, or of an unsupported version."""


class DeviceError(StartupError):
    """The device asked for is not there or cannot run this bundle."""


@dataclass(frozen=True)
class FieldViolation:
    """One wrong field: its path in the request (``texts[3]``, ``options.max_length``) and what is wrong with it."""

    field: str
    description: str


class RequestError(ServerError):
    """A request that gets an error for an answer. `reason` is stable: clients may switch on it."""

    reason = "INTERNAL"


class InvalidRequestError(RequestError):
    """One or more fields of the request are wrong."""

    reason = "INVALID_FIELD"

    def __init__(self, *violations: FieldViolation) -> None:
        self.violations = violations
        super().__init__("; ".join(f"{v.field}: {v.description}" for v in violations))


class ModelNotFoundError(RequestError):
    """No loaded model has the requested name."""

    reason = "MODEL_NOT_FOUND"


class _RetryableError(RequestError):
    """Refused for now: `retry_after` [seconds] is when to try again."""

    def __init__(self, message: str, retry_after: float) -> None:
        self.retry_after = retry_after
        super().__init__(message)


class QueueFullError(_RetryableError):
    """More sentences are waiting than the server is set to hold."""

    reason = "QUEUE_FULL"


class UnavailableError(_RetryableError):
    """The server is starting up, or draining before it stops."""

    reason = "UNAVAILABLE"


class EngineError(RequestError):
    """Decoding failed for a reason that is not the caller's."""

    reason = "ENGINE_FAILURE"


def first_line(error: Exception) -> str:
    """The first line of what an exception says; its type where it says nothing."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__
