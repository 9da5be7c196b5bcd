"""What the two clients share: everything but the waiting.

A call takes these hops, whichever client makes it:

    translate(…), score(…) → Job → batches → Call → Exchange: attempt → pause → attempt … → parsed answers
    translate_stream(…)    →                 Call → Exchange: attempt → pause → attempt … → parsed messages

The clients own the loop over an Exchange's attempts; what is sent, what an error means, whether and when another
attempt follows is decided here, without a network and without a clock of its own.
"""

from __future__ import annotations

import math
import random
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, Generic

import grpc

from translane_client._messages import Batch, Call, Item, stub_of
from translane_client._status import exception_from
from translane_client.errors import Cancelled, DeadlineExceeded, QueueFull, TranslaneError
from translane_client.retry import RetryPolicy
from translane_client.types import ServerInfo

DEFAULT_PORT = 50051
DEFAULT_BATCH_SIZE = 64
BATCH_BYTES = 1 << 20
"""Most UTF-8 in one request of several items: well below the 4 MiB that gRPC servers take by default."""

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
    and attempts again; of an answer of many messages it tells with `answered()` that the first one is there, after
    which every error is final: what was handed out cannot be taken back.
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
        self._answered = False

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

    def answered(self) -> None:
        """A part of the answer is there."""
        self._answered = True

    def pause_after(self, failure: grpc.RpcError) -> float:
        """Seconds to wait before the next attempt.

        Raises:
            TranslaneError: there is to be none: trying again makes no sense, the attempts are used up, a part of the
                answer is there, or the pause would not end before the deadline.
        """
        if self._closed() and _code(failure) is grpc.StatusCode.CANCELLED:
            raise Cancelled("the client was closed") from failure
        error: TranslaneError = exception_from(failure, address=self._address, offset=self._offset)
        if self._answered:
            raise error from failure
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
    """Settings and connection of a client, and what follows from them without waiting."""

    _grpc: ClassVar[Any]
    """The module that opens channels: grpc or grpc.aio."""

    def __init__(
        self,
        address: str = f"localhost:{DEFAULT_PORT}",
        *,
        credentials: grpc.ChannelCredentials | None = None,
        timeout: float | None = None,
        retry: RetryPolicy | None = None,
        batch_size: int | None = None,
        concurrency: int = 4,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
        sleep: Callable[[float], Any] | None = None,
    ) -> None:
        if batch_size is not None and batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, not {batch_size}")
        if concurrency < 1:
            raise ValueError(f"concurrency must be at least 1, not {concurrency}")
        self.address = target_of(address)
        self._credentials = credentials
        self._timeout = math.inf if timeout is None else timeout
        self._retry = RetryPolicy() if retry is None else retry
        self._batch_size = batch_size
        self._concurrency = concurrency
        self._clock = clock
        self._jitter = jitter
        self._sleep = sleep
        self._opening = threading.Lock()
        self._channel: Any = None
        self._stub: Any = None
        self._closed = False
        self._deadline(None)  # refuses a timeout that is not positive here and not at the first call

    def _method(self, call: Call[Any]) -> Any:
        """What sends `call`. The first one opens the channel: one of grpc.aio belongs to the loop that runs then."""
        with self._opening:
            if self._closed:
                raise Cancelled("the client was closed")
            if self._channel is None:
                if self._credentials is None:
                    self._channel = self._grpc.insecure_channel(self.address, options=CHANNEL_OPTIONS)
                else:
                    self._channel = self._grpc.secure_channel(self.address, self._credentials, options=CHANNEL_OPTIONS)
                self._stub = stub_of(self._channel)
        return getattr(self._stub, call.method)

    def _closing(self) -> Any:
        """Refuses calls from now on; returns what closes the channel, None where it was never opened."""
        with self._opening:
            self._closed = True
        return self._channel

    def _deadline(self, timeout: float | None) -> Deadline:
        return Deadline(self._timeout if timeout is None else timeout, self._clock)

    def _exchange(self, call: Call[Any], deadline: Deadline, patient: bool = False) -> Exchange:
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


def batches(items: Iterable[Item], size: int, size_of: Callable[[Item], int]) -> Iterator[Batch[Item]]:
    """`items`, read only as far as batches are taken, gathered as Gatherer does it."""
    gatherer = Gatherer(size, size_of)
    for item in items:
        yield from gatherer.add(item)
    yield from gatherer.rest()


class Gatherer(Generic[Item]):
    """Gathers items into batches of up to `size`, and of up to BATCH_BYTES where that is more than one item.

    Args:
        size: Most items of a batch.
        size_of: The bytes of an item.
    """

    def __init__(self, size: int, size_of: Callable[[Item], int]) -> None:
        self._size = size
        self._size_of = size_of
        self._items = list[Item]()
        self._bytes = 0
        self._offset = 0

    def add(self, item: Item) -> Iterator[Batch[Item]]:
        """Takes one more item; yields the batches that are complete with it or without room for it."""
        size = self._size_of(item)
        if self._bytes + size > BATCH_BYTES:
            yield from self.rest()
        self._items.append(item)
        self._bytes += size
        if len(self._items) == self._size:
            yield from self.rest()

    def rest(self) -> Iterator[Batch[Item]]:
        """Yields what is gathered, if anything is."""
        if self._items:
            batch = Batch(self._items, self._offset)
            self._offset += len(self._items)
            self._items, self._bytes = [], 0
            yield batch
