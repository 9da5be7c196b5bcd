"""What the two clients share: everything but the waiting.

A call takes these hops, whichever client makes it:

    translate(…) → settings → batches → Call → Exchange: attempt → pause → attempt … → parsed answer

The clients own the channel and the loop over an Exchange's attempts; what is sent, what an error means, whether and
when another attempt follows is decided here, without a network and without a clock of its own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import grpc

from translane.v1 import translation_pb2 as pb
from translane_client._messages import Batch, Call
from translane_client._status import exception_from
from translane_client.errors import Cancelled, DeadlineExceeded, QueueFull, TranslaneError
from translane_client.options import options_message
from translane_client.retry import RetryPolicy
from translane_client.types import ServerInfo

DEFAULT_PORT = 50051
DEFAULT_BATCH_SIZE = 64
BATCH_BYTES = 1 << 20
"""Most UTF-8 in one request of several texts: well below the 4 MiB that gRPC servers take by default."""

CHANNEL_OPTIONS = [
    ("grpc.max_receive_message_length", -1),  # the answer is as long as the question asked for
    # gRPC's own pause between connection attempts grows to two minutes: a retry within it fails without trying.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
]


def target_of(address: str) -> str:
    """`address` with the default port where it is a bare host name or IPv4 address.

    Raises:
        ValueError: it is empty or a web address.
    """
    if not address.strip() or re.match(r"https?://", address):
        raise ValueError(f"HOST:PORT is needed, not {address!r}")
    return f"{address}:{DEFAULT_PORT}" if re.fullmatch(r"[\w.-]+|\[[0-9a-fA-F:]+\]", address) else address


_FOREVER = 1e9
"""Seconds; gRPC takes deadlines much further away for ones that have passed."""


class Deadline:
    """A point in time by which a call has to be over; math.inf seconds from now, or more than 1e9, for none."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        if not seconds > 0:
            raise ValueError(f"timeout must be a positive number of seconds, not {seconds}")
        self._clock = clock
        self._at = math.inf if seconds > _FOREVER else clock() + seconds

    def remaining(self) -> float:
        """Seconds left; not positive once it has passed."""
        return self._at - self._clock()


class Exchange:
    """One call and its attempts, up to an answer or an error that is final.

    A `patient` one waits for room in the server's queue however often that is full, up to the deadline.

    A client attempts the call for `timeout()` seconds, hands a failure to `pause_after`, waits as long as that says
    and attempts again.
    """

    def __init__(
        self,
        call: Call[Any],
        *,
        address: str,
        retry: RetryPolicy,
        deadline: Deadline,
        jitter: Callable[[], float],
        closed: Callable[[], bool],
        patient: bool,
    ) -> None:
        self._patient = patient
        self._waits = 0
        self._closed = closed
        self._offset = call.offset
        self._address = address
        self._retry = retry
        self._deadline = deadline
        self._jitter = jitter
        self._attempt = 0

    def timeout(self) -> float | None:
        """Begins an attempt; returns the seconds it may take, None for any number.

        Raises:
            DeadlineExceeded: none are left.
        """
        self._attempt += 1
        remaining = self._deadline.remaining()
        if remaining <= 0:
            raise DeadlineExceeded(f"no answer from {self._address} before the deadline")
        return None if math.isinf(remaining) else remaining

    def pause_after(self, failure: grpc.RpcError) -> float:
        """Seconds to wait before the next attempt.

        Raises:
            TranslaneError: there is to be none: trying again makes no sense, the attempts are used up, or the pause
                would not end before the deadline.
        """
        if self._closed() and _code(failure) is grpc.StatusCode.CANCELLED:
            raise Cancelled("the client was closed") from failure
        error: TranslaneError = exception_from(failure, address=self._address, offset=self._offset)
        if self._patient and isinstance(error, QueueFull):
            self._waits += 1  # and no attempt is used up: the server is well, and says when to come back
        elif not self._retry.retries(error, self._attempt - self._waits):
            raise error from failure
        pause = self._retry.pause(error, self._attempt, self._jitter())
        if pause >= self._deadline.remaining():
            raise error from failure
        return pause


def _code(failure: Any) -> object:
    """The status of an error of grpc's, which is a call as well, though its type does not say so."""
    return failure.code()


class BaseClient:
    """Settings of a client, and what follows from them without waiting."""

    def __init__(
        self,
        address: str,
        *,
        timeout: float | None,
        retry: RetryPolicy | None,
        batch_size: int | None,
        concurrency: int,
        clock: Callable[[], float],
        jitter: Callable[[], float],
    ) -> None:
        if batch_size is not None and batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, not {batch_size}")
        if concurrency < 1:
            raise ValueError(f"concurrency must be at least 1, not {concurrency}")
        self.address = target_of(address)
        self._timeout = math.inf if timeout is None else timeout
        self._retry = RetryPolicy() if retry is None else retry
        self._batch_size = batch_size
        self._concurrency = concurrency
        self._clock = clock
        self._jitter = jitter
        self._closed = False
        self._deadline(None)  # refuses a timeout that is not positive here and not at the first call

    def _deadline(self, timeout: float | None) -> Deadline:
        return Deadline(self._timeout if timeout is None else timeout, self._clock)

    def _exchange(self, call: Call[Any], deadline: Deadline, patient: bool) -> Exchange:
        if self._closed:
            raise RuntimeError("the client is closed")
        return Exchange(
            call,
            address=self.address,
            retry=self._retry,
            deadline=deadline,
            jitter=self._jitter,
            closed=lambda: self._closed,
            patient=patient,
        )

    def _adopt_limits(self, info: ServerInfo) -> int:
        """Settles the batch size, where it was left open, by what the server takes at once."""
        limits = info.limits
        self._batch_size = min(DEFAULT_BATCH_SIZE, limits.texts_per_request or DEFAULT_BATCH_SIZE)
        if limits.sentences_waiting:  # all requests under way fit into the queue
            self._batch_size = min(self._batch_size, max(1, limits.sentences_waiting // self._concurrency))
        return self._batch_size


def settings_message(
    model: str, source_language: str, target_language: str, priority: int, options: Mapping[str, Any]
) -> pb.TranslateRequest:
    """A request without texts."""
    return pb.TranslateRequest(
        model=model,
        source_language=source_language,
        target_language=target_language,
        priority=priority,
        options=options_message(options),
    )


def batches(texts: Iterable[str], size: int) -> Iterator[Batch]:
    """`texts`, read only as far as batches are taken, up to `size` at a time."""
    gatherer = Gatherer(size)
    for text in texts:
        yield from gatherer.add(text)
    yield from gatherer.rest()


class Gatherer:
    """Gathers texts into batches of up to `size`, and of up to BATCH_BYTES where that is more than one text."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._texts = list[str]()
        self._bytes = 0
        self._offset = 0

    def add(self, text: str) -> Iterator[Batch]:
        """Takes one more text; yields the batches that are complete with it or without room for it."""
        # What is no str, or no Unicode, is refused where the request is made: it names the text.
        size = len(text.encode(errors="surrogatepass")) if isinstance(text, str) else 0
        if self._bytes + size > BATCH_BYTES:
            yield from self.rest()
        self._texts.append(text)
        self._bytes += size
        if len(self._texts) == self._size:
            yield from self.rest()

    def rest(self) -> Iterator[Batch]:
        """Yields what is gathered, if anything is."""
        if self._texts:
            batch = Batch(self._texts, self._offset)
            self._offset += len(self._texts)
            self._texts, self._bytes = [], 0
            yield batch
