"""What the two clients share: everything but the waiting.

A call is a generator of effects: it decides what comes next, and a client performs that, with threads or with tasks,
and sends the outcome back. The generators know no network, and no clock but the client's.

    translate(…), score(…) → Job → answers → exchange: attempt → pause → attempt … → parsed answers
    translate_stream(…)    →       deltas:             attempt → pause → attempt … → parsed messages
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections import Counter, deque
from collections.abc import AsyncIterable, Callable, Generator, Iterable, Sequence
from typing import Any, ClassVar, Generic, NamedTuple, Unpack

import grpc

from translane.errors import (
    Cancelled,
    DeadlineExceeded,
    InvalidArgument,
    QueueFull,
    TranslaneError,
    Unavailable,
    checked_items,
)
from translane.v1 import translation_pb2_grpc
from translane_client._addresses import DEFAULT_PORT
from translane_client._requests import (
    Answer,
    Call,
    Item,
    Job,
    ReceivedDocument,
    ReceivedStream,
    server_call,
)
from translane_client._status import exception_from, is_hopeless
from translane_client.connection import Connection, ConnectionOptions
from translane_client.retry import ANSWERED, ATTEMPTS, RetryPolicy

DEFAULT_BATCH_SIZE = 64
DEFAULT_CONNECT_TIMEOUT = 5.0

MOST_BYTES = 1 << 20
"""The largest request that the client makes of several items. A server takes as much by default."""

_TOO_LONG = "REQUEST_TOO_LONG"  # the reason of a request whose items may be accepted in several requests

# What an item takes in a message beside its text: tags and lengths of it and of its parts, at the most.
_ITEM_BYTES = 32
_LEAST_BYTES = 1 << 14  # for the items of a request

# While a call is under way, the server is asked for a sign of life so often, and given so long for it [ms]. A server
# ends connections that ask too often: one of Translane allows a ping every 10 s.
_KEEPALIVE, _KEEPALIVE_TIMEOUT = 20_000, 10_000

_MOVES_AT_ONCE, _MOST_MOVES = 8, 32
"""How often a call moves on to the next server before it looks whether others are served, and in all."""

_FOREVER = 1e9  # seconds; gRPC takes a deadline that is much further away for one that has passed


class Send(NamedTuple):
    """Makes a call. The outcome is the response, or a grpc.RpcError that is thrown."""

    call: Call[Any]
    timeout: float | None


class Open(NamedTuple):
    """Makes a call whose response is a stream. The outcome is what Next takes."""

    call: Call[Any]
    timeout: float | None


END: Any = object()


class Next(NamedTuple):
    """Takes the next of messages or of a caller's items, or END. It may throw as Send does."""

    source: Any


class Sleep(NamedTuple):
    """Waits."""

    seconds: float


class Start(NamedTuple):
    """Performs other steps at the same time. The outcome is what Join takes."""

    steps: Steps


class Join(NamedTuple):
    """Waits for steps that were started. The outcome is a list of what they have handed out."""

    task: Any


class Hand(NamedTuple):
    """Hands values to the caller."""

    values: Iterable[Any]


Steps = Generator[Send | Open | Next | Sleep | Start | Join | Hand, Any, None]


def channel_options(connect_timeout: float = DEFAULT_CONNECT_TIMEOUT) -> list[tuple[str, int]]:
    """Options of a channel whose attempts to connect take at most `connect_timeout` seconds each.

    https://grpc.github.io/grpc/core/group__grpc__arg__keys.html
    """
    milliseconds = max(1, min(round(connect_timeout * 1000), 2**31 - 1))
    return [
        ("grpc.max_receive_message_length", -1),  # the answer is as long as the request makes it
        # gRPC's own pause between connection attempts grows to two minutes: a retry within that pause fails untried.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 1000),
        ("grpc.min_reconnect_backoff_ms", milliseconds),  # in spite of its name, the time of an attempt to connect
        ("grpc.dns_ares_query_timeout", milliseconds),
        ("grpc.keepalive_time_ms", _KEEPALIVE),
        ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT),
        ("grpc.http2.ping_timeout_ms", _KEEPALIVE_TIMEOUT),  # gRPC's own is a minute, and the longer of the two counts
        ("grpc.http2.max_pings_without_data", 0),  # no limit: a long call sends nothing while it waits
    ]


class Batches(Generic[Item]):
    """Cuts items into batches of at most `size`, whose requests have at most MOST_BYTES if they have several items."""

    def __init__(self, items: Iterable[Item] | AsyncIterable[Item], size: int, job: Job[Item, Any]) -> None:
        self.job = job
        self.are_over = False  # whether all items are known to be read
        self.error: Exception | None = None  # of the caller's iterator, which ends the items
        self._items = aiter(items) if isinstance(items, AsyncIterable) else iter(items)
        self._count = len(items) if isinstance(items, list) else None
        self._size = size
        self._most = max(_LEAST_BYTES, MOST_BYTES - job.overhead)
        self._offset = 0
        self._waiting = list[Item]()  # an item that did not fit into the batch before

    def next(self) -> Generator[Next, Any, tuple[Sequence[Item], int]]:
        """Reads the next batch, and no item more than that takes: its items, and the index of the first one."""
        items, self._waiting = self._waiting, []
        size = sum(map(self._bytes_of, items))
        while len(items) < self._size and not self.are_over:
            try:
                item = yield Next(self._items)
            except Exception as error:  # noqa: BLE001 (it is the caller's)
                self.error, item = error, END
            if item is END:
                self.are_over = True
                break
            size += self._bytes_of(item)
            if items and size > self._most:
                self._waiting = [item]
                break
            items.append(item)
        self._offset += len(items)
        self.are_over |= self._offset == self._count
        return items, self._offset - len(items)

    def _bytes_of(self, item: Item) -> int:
        return self.job.size_of(item) + _ITEM_BYTES


class BaseClient:
    """Settings and connection of a client, and the steps of its calls."""

    _grpc: ClassVar[Any]
    """The module that opens channels: grpc or grpc.aio."""

    # Tests have another time.
    _clock: Callable[[], float] = staticmethod(time.monotonic)
    _jitter: Callable[[], float] = staticmethod(random.random)
    _sleep: Callable[[float], Any] | None = None

    def __init__(
        self,
        address: str | Iterable[str] | Connection = f"localhost:{DEFAULT_PORT}",
        *,
        timeout: float | None = None,
        connect_timeout: float = DEFAULT_CONNECT_TIMEOUT,
        retry: RetryPolicy | None = None,
        batch_size: int | None = None,
        concurrency: int = 4,
        **connection: Unpack[ConnectionOptions],
    ) -> None:
        if batch_size is not None and batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, not {batch_size}")
        if not 0 < connect_timeout < math.inf:
            raise ValueError(f"connect_timeout must be a positive number of seconds, not {connect_timeout}")
        if concurrency < 1:
            raise ValueError(f"concurrency must be at least 1, not {concurrency}")
        if isinstance(address, Connection) and connection:
            raise TypeError(f"a Connection has its own {', '.join(connection)}")
        self._connection = address if isinstance(address, Connection) else Connection(address, **connection)
        self.address = self._connection.name
        self._connect_timeout = connect_timeout
        self._timeout = math.inf if timeout is None else timeout
        self._retry = RetryPolicy() if retry is None else retry
        self._batch_size = batch_size
        self._concurrency = concurrency
        self._opening = threading.Lock()
        self._channel: Any = None
        self._previous: Any = None
        self._generation = 0
        self._discarding = set[Any]()
        self._stub: Any = None
        self._closed = False
        self._answered = Counter[tuple[str, ...]]()
        """How many calls were answered, for each model and pair of languages that is asked for."""
        self._unserved = dict[tuple[str, ...], int]()
        """How many were answered when a call found no server that could serve."""
        self._deadline(None)  # refuses a timeout that is not positive now, and not at the first call

    # The connection

    def _method(self, call: Call[Any]) -> Any:
        """The stub's method that sends `call`.

        The first call opens the channel, because a channel of grpc.aio belongs to the event loop that runs then. The
        first call after the certificates were replaced opens another one. The channel before stays open for the calls
        that it has, until the certificates are replaced again.
        """
        with self._opening:
            if self._closed:
                raise Cancelled("the client was closed")
            generation = self._connection.generation()
            if self._channel is None or generation != self._generation:
                channel = self._connection.channel(self._grpc, channel_options(self._connect_timeout))
                if self._previous is not None:
                    self._discard(self._previous)
                self._generation = generation
                self._previous, self._channel = self._channel, channel
                self._stub = translation_pb2_grpc.TranslationServiceStub(channel)  # type: ignore[no-untyped-call]  # generated
        return getattr(self._stub, call.method)

    def _discard(self, channel: Any) -> None:
        """Closes a channel without waiting."""
        raise NotImplementedError

    def _closing(self) -> list[Any]:
        """Refuses calls from now on; returns the channels to close."""
        with self._opening:
            self._closed = True
        return [channel for channel in (self._channel, self._previous) if channel is not None]

    # The steps of calls

    def _deadline(self, timeout: float | None) -> float:
        """When a call has to be over, on the client's clock. ValueError: the timeout is not positive."""
        seconds = self._timeout if timeout is None else timeout
        if not seconds > 0:
            raise ValueError(f"timeout must be a positive number of seconds, not {seconds}")
        return math.inf if seconds > _FOREVER else self._clock() + seconds

    def _exchange(self, call: Call[Answer], deadline: float, patient: bool = False) -> Generator[Any, Any, Answer]:
        """The attempts at a call; returns the answer."""
        attempts = _Attempts(self, call, deadline, patient)
        while True:
            try:
                response = yield Send(call, attempts.timeout())
            except grpc.RpcError as failure:
                yield Sleep(attempts.pause_after(failure))
            else:
                ATTEMPTS.debug(ANSWERED)
                self._answered[call.kind] += 1
                return call.parse(response)

    def _deltas(self, call: Call[Any], received: ReceivedStream | ReceivedDocument, timeout: float | None) -> Steps:
        """Hands out the deltas of a stream that are not empty, or the document at its end."""
        self._deadline(timeout)  # refuses a wrong timeout now, and not at the first delta

        def steps() -> Steps:
            attempts = _Attempts(self, call, self._deadline(timeout), patient=False)
            while True:
                received.begin()
                try:
                    messages = yield Open(call, attempts.timeout())
                    while (message := (yield Next(messages))) is not END:
                        ATTEMPTS.debug(ANSWERED)
                        if delta := call.parse(message):
                            yield Hand([delta])
                    received.end()
                    self._answered[call.kind] += 1
                    return
                except grpc.RpcError as failure:
                    yield Sleep(attempts.pause_after(failure))

        return steps()

    def _all(self, job: Job[Item, Answer], items: Iterable[Item], timeout: float | None) -> Steps:
        """Hands out the answers to all items of a list, within one deadline."""
        deadline = self._deadline(timeout)
        items = list(items)
        size = 1 if len(items) < 2 else (yield from self._size(deadline))
        yield from self._window(Batches(items, size, job), lambda: deadline, patient=False)

    def _lazily(
        self, job: Job[Item, Answer], items: Iterable[Item] | AsyncIterable[Item], timeout: float | None
    ) -> Steps:
        """Hands out the answers as they are asked for; each request has a deadline of its own."""
        checked_items(items)
        self._deadline(timeout)  # refuses a wrong timeout now, and not at the first answer

        def steps() -> Steps:
            size = yield from self._size(self._deadline(timeout))
            yield from self._window(Batches(items, size, job), lambda: self._deadline(timeout), patient=True)

        return steps()

    def _window(self, batches: Batches[Any], deadline: Callable[[], float], *, patient: bool) -> Steps:
        """Keeps up to `concurrency` batches under way; hands out the oldest batch's answers first.

        An error of the caller's iterator comes after the answers to the items before it.
        """
        window = deque[Any]()
        while (batch := (yield from batches.next()))[0]:
            answering = self._answers(batches.job, *batch, deadline(), patient)
            if batches.are_over and not window:  # nothing runs beside it
                yield from answering
                break
            window.append((yield Start(answering)))
            if len(window) == self._concurrency:
                yield Hand((yield Join(window.popleft())))
        while window:
            yield Hand((yield Join(window.popleft())))
        if batches.error:
            raise batches.error

    def _server_info(self, timeout: float | None) -> Steps:
        yield Hand((yield from self._exchange(server_call(), self._deadline(timeout))))

    def _answers(
        self, job: Job[Any, Any], items: Sequence[Any], offset: int, deadline: float, patient: bool = False
    ) -> Steps:
        """Hands out the answers to some items: by one request, or by several if the server finds it too long."""
        try:
            answers = yield from self._exchange(job.call(items, offset), deadline, patient)
        except InvalidArgument as error:
            if error.reason != _TOO_LONG or len(items) == 1:
                raise
        else:
            yield Hand(answers)
            return
        middle = len(items) // 2
        yield from self._answers(job, items[:middle], offset, deadline, patient)
        yield from self._answers(job, items[middle:], offset + middle, deadline, patient)

    def _size(self, deadline: float) -> Generator[Any, Any, int]:
        """The size of batches. One that was left open becomes what the server takes at once."""
        if self._batch_size is None:
            limits = (yield from self._exchange(server_call(), deadline))[0].limits
            size = min(DEFAULT_BATCH_SIZE, limits.max_request_texts or DEFAULT_BATCH_SIZE)
            if limits.max_queue_size:  # all requests under way fit into the queue
                size = min(size, max(1, limits.max_queue_size // self._concurrency))
            self._batch_size = size
        return self._batch_size


class _Attempts:
    """The attempts at a call: how long each may take, and whether another follows.

    A `patient` call waits for room in a full queue up to the deadline, and uses up no attempts for it.
    """

    def __init__(self, client: BaseClient, call: Call[Any], deadline: float, patient: bool) -> None:
        if client._closed:
            raise RuntimeError("the client is closed")
        self._client = client
        self._call = call
        self._deadline = deadline
        self._patient = patient
        self._attempt = 0
        self._waits = 0
        self._moved = 0
        self._answered = 0

    def timeout(self) -> float | None:
        """Begins an attempt; returns the seconds that it may take, or None. DeadlineExceeded: no time is left."""
        self._attempt += 1
        remaining = self._remaining()
        if remaining <= 0:
            raise DeadlineExceeded(f"no answer from {self._client.address} before the deadline")
        ATTEMPTS.debug("%s", self._client.address)
        return None if math.isinf(remaining) else remaining

    def _remaining(self) -> float:
        return self._deadline - self._client._clock()

    def pause_after(self, failure: grpc.RpcError) -> float:
        """Seconds to wait before the next attempt. TranslaneError: no attempt follows, or it would be too late."""
        call: Any = failure  # gRPC's errors are calls as well, though their types do not say so
        if self._client._closed and call.code() is grpc.StatusCode.CANCELLED:
            raise Cancelled("the client was closed") from failure
        retry = self._client._retry
        error = exception_from(failure, connection=self._client._connection, offset=self._call.offset)
        may_follow = retry.retries(error, self._attempt - self._waits)
        jitter = self._client._jitter()
        if may_follow and self._moves_on(error):
            self._attempt -= 1  # none is used up: another server is asked
            pause = 0.0 if self._moved % _MOVES_AT_ONCE else jitter * retry.initial
        elif is_hopeless(failure) or (error.retry_after or 0.0) > retry.longest_wait:
            raise error from failure
        else:
            if self._patient and isinstance(error, QueueFull):
                self._waits += 1  # no attempt is used up: the server is well, and says when to come back
            elif not may_follow:
                raise error from failure
            pause = retry.pause(error, self._attempt, jitter)
        if pause >= self._remaining():
            raise error from failure
        ATTEMPTS.info("%s", error)
        return pause

    def _moves_on(self, error: TranslaneError) -> bool:
        """Whether the next server is asked before any back-off: this one cannot serve, but another one may.

        gRPC takes the servers in turn, and does not tell whose turn it is: where calls are many, the next server may be
        the same. So a call moves on as long as calls of its kind are answered. If none is, no call of the kind moves on
        until one is answered: where no server serves, the back-off is as long as ever. A server that was lost has no
        turn any more, and a call that ends servers must not go through them all at once.
        """
        client, kind = self._client, self._call.kind
        answered = client._answered[kind]
        is_refusal = isinstance(error, Unavailable) and bool(error.reason)
        if not is_refusal or not client._connection.has_several or client._unserved.get(kind) == answered:
            return False
        if self._moved % _MOVES_AT_ONCE == 0:
            if self._moved == _MOST_MOVES:
                return False
            if self._moved and answered == self._answered:
                client._unserved[kind] = answered
                return False
            self._answered = answered
        self._moved += 1
        return True
