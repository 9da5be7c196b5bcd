"""One call and its attempts: how long each may take, and whether another follows."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import grpc

from translane.errors import Cancelled, DeadlineExceeded, QueueFull, TranslaneError
from translane_client._requests import Call
from translane_client._status import exception_from, is_hopeless
from translane_client.connection import Connection
from translane_client.retry import ATTEMPTS, RetryPolicy

_FOREVER = 1e9
"""Seconds; gRPC takes a deadline that is much further away for one that has passed."""


class Deadline:
    """The point in time by which a call has to be over.

    Args:
        seconds: Seconds from now; more than 1e9, or math.inf, means no deadline.
        clock: Monotonic seconds.

    Raises:
        ValueError: `seconds` is not positive.
    """

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        if not seconds > 0:
            raise ValueError(f"timeout must be a positive number of seconds, not {seconds}")
        self._clock = clock
        self._at = math.inf if seconds > _FOREVER else clock() + seconds

    def remaining(self) -> float:
        """Seconds left: zero or less once the deadline has passed."""
        return self._at - self._clock()


class Exchange:
    """One call and its attempts, up to an answer or a final error.

    A client repeats three steps: it attempts the call for `timeout()` seconds, hands a failure to `pause_after`, and
    waits as long as `pause_after` says.

    A `patient` exchange waits for room in a full queue up to the deadline, and uses up no attempts for it.
    """

    def __init__(
        self,
        call: Call[Any],
        *,
        connection: Connection,
        retry: RetryPolicy,
        deadline: Deadline,
        jitter: Callable[[], float],
        closed: Callable[[], bool],
        patient: bool,
    ) -> None:
        self._offset = call.offset
        self._connection = connection
        self._retry = retry
        self._deadline = deadline
        self._jitter = jitter
        self._closed = closed
        self._patient = patient
        self._attempt = 0
        self._waits = 0

    def timeout(self) -> float | None:
        """Begins an attempt; returns the seconds that the attempt may take, or None for no limit.

        Raises:
            DeadlineExceeded: no time is left.
        """
        self._attempt += 1
        remaining = self._deadline.remaining()
        if remaining <= 0:
            raise DeadlineExceeded(f"no answer from {self._connection.name} before the deadline")
        return None if math.isinf(remaining) else remaining

    def pause_after(self, failure: grpc.RpcError) -> float:
        """Seconds to wait before the next attempt.

        Raises:
            TranslaneError: no attempt follows. A retry makes no sense, or the attempts are used up, or the pause would
                not end before the deadline.
        """
        if self._closed() and _code(failure) is grpc.StatusCode.CANCELLED:
            raise Cancelled("the client was closed") from failure
        error: TranslaneError = exception_from(failure, connection=self._connection, offset=self._offset)
        if is_hopeless(failure) or self._retry.is_too_long(error):
            raise error from failure
        if self._patient and isinstance(error, QueueFull):
            self._waits += 1  # no attempt is used up: the server is well, and says when to come back
        elif not self._retry.retries(error, self._attempt - self._waits):
            raise error from failure
        pause = self._retry.pause(error, self._attempt, self._jitter())
        if pause >= self._deadline.remaining():
            raise error from failure
        ATTEMPTS.info("%s", error)
        return pause


def _code(failure: Any) -> object:
    """The status of an error of gRPC's: such an error is a call as well, though its type does not say so."""
    return failure.code()
