"""What the two clients share: everything but the waiting.

A call takes these steps, whichever client makes it:

    translate(…), score(…) → Job → batches → Call → Exchange: attempt → pause → attempt … → parsed answers
    translate_stream(…)    →                 Call → Exchange: attempt → pause → attempt … → parsed messages

The clients own the loop over an Exchange's attempts. The modules below decide the rest without a network and without a
clock of their own: `_requests` what is sent, `_responses` how an answer is read, `_status` what an error means,
`_exchange` whether and when another attempt follows.
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Unpack

from translane.errors import Cancelled
from translane.results import ServerInfo
from translane_client._addresses import DEFAULT_PORT
from translane_client._exchange import Deadline, Exchange
from translane_client._requests import SERVICE_NAME, Call, stub_of
from translane_client._token import Metadata
from translane_client._tracing import traced
from translane_client.connection import Connection, ConnectionOptions
from translane_client.retry import RetryPolicy

DEFAULT_BATCH_SIZE = 64

DEFAULT_CONNECT_TIMEOUT = 5.0

# While a call is under way, the server is asked for a sign of life so often, and given so long for it [ms]. A server
# ends connections that ask too often: one of Translane allows a ping every 10 s.
_KEEPALIVE, _KEEPALIVE_TIMEOUT = 20_000, 10_000


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


class BaseClient:
    """Settings and connection of a client, and what follows from them without waiting."""

    _grpc: ClassVar[Any]
    """The module that opens channels: grpc or grpc.aio."""

    def __init__(
        self,
        address: str | Iterable[str] | Connection = f"localhost:{DEFAULT_PORT}",
        *,
        timeout: float | None = None,
        connect_timeout: float = DEFAULT_CONNECT_TIMEOUT,
        retry: RetryPolicy | None = None,
        batch_size: int | None = None,
        concurrency: int = 4,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
        sleep: Callable[[float], Any] | None = None,
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
        self._clock = clock
        self._jitter = jitter
        self._sleep = sleep
        self._opening = threading.Lock()
        self._channel: Any = None
        self._previous: Any = None
        self._generation = 0
        self._discarding = set[Any]()
        self._stub: Any = None
        self._closed = False
        self._deadline(None)  # refuses a timeout that is not positive now, and not at the first call

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
                self._previous, self._channel, self._stub = self._channel, channel, stub_of(channel)
        return traced(getattr(self._stub, call.method), f"{SERVICE_NAME}/{call.method}", self.address)

    def _discard(self, channel: Any) -> None:
        """Closes a channel without waiting."""
        raise NotImplementedError

    def _closing(self) -> list[Any]:
        """Refuses calls from now on; returns the channels to close."""
        with self._opening:
            self._closed = True
        return [channel for channel in (self._channel, self._previous) if channel is not None]

    def _metadata(self) -> Metadata | None:
        """What the next attempt carries beside its request."""
        return self._connection.metadata()

    def _deadline(self, timeout: float | None) -> Deadline:
        return Deadline(self._timeout if timeout is None else timeout, self._clock)

    def _exchange(self, call: Call[Any], deadline: Deadline, patient: bool = False) -> Exchange:
        if self._closed:
            raise RuntimeError("the client is closed")
        return Exchange(
            call,
            connection=self._connection,
            retry=self._retry,
            deadline=deadline,
            jitter=self._jitter,
            closed=lambda: self._closed,
            patient=patient,
        )

    def _adopt_limits(self, info: ServerInfo) -> int:
        """Settles a batch size that was left open: no more than the server takes at once."""
        limits = info.limits
        self._batch_size = min(DEFAULT_BATCH_SIZE, limits.max_request_texts or DEFAULT_BATCH_SIZE)
        if limits.max_queue_size:  # all requests under way fit into the queue
            self._batch_size = min(self._batch_size, max(1, limits.max_queue_size // self._concurrency))
        return self._batch_size
