"""Sends requests at given times, or as fast as clients get answers, and measures."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import grpc
from google.protobuf.message import DecodeError

from translane.v1 import translation_pb2 as pb
from translane_client._core import CHANNEL_OPTIONS
from translane_client._status import exception_from
from translane_client.bench.measurement import Measurement
from translane_client.errors import Internal, TranslaneError

_METHOD = "/translane.v1.TranslationService/Translate"
_LOOK_EVERY = 0.1
"""Seconds between two looks at whether a load is hopeless."""

Send = Callable[..., Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class Bound:
    """What the latency is held to: `share` of the requests are answered within `seconds`."""

    seconds: float
    share: float = 0.95

    def is_kept_by(self, measurement: Measurement) -> bool:
        """Whether that many are; one that failed is not."""
        return measurement.quantile_of_all(self.share) <= self.seconds

    def late_allowed(self, requests: int) -> int:
        """How many of the requests may be late."""
        return requests - math.ceil(self.share * requests)


@dataclass(frozen=True, slots=True)
class Window:
    """The measured time, on the event loop's clock."""

    start: float
    end: float

    def __contains__(self, at: float) -> bool:
        return self.start <= at < self.end

    def passed(self, now: float) -> float:
        """Seconds of it that have passed."""
        return min(max(now, self.start), self.end) - self.start


class Load:
    """A server under load. Use it as an asynchronous context manager; it belongs to the event loop that runs then.

    A request and its answer stay bytes: the generator, which may share the server's processors, is to cost little.

    Args:
        address: of the server.
        requests: serialised TranslateRequests, as many as are asked for.
        texts_per_request: texts that each of them holds.
        timeout: deadline of each request [s].
        connections: to the server; requests take them in turn.
        count_tokens: whether the answers hold tokens, which are counted.
    """

    def __init__(
        self,
        address: str,
        requests: Iterator[bytes],
        *,
        texts_per_request: int,
        timeout: float,
        connections: int = 1,
        count_tokens: bool = False,
    ) -> None:
        self._address = address
        self._requests = requests
        self._texts_per_request = texts_per_request
        self._timeout = timeout
        self._connections = connections
        self._count_tokens = count_tokens
        self._stack = AsyncExitStack()
        self._senders: Iterator[Send] = iter(())
        self.failures: dict[str, TranslaneError] = {}
        """By gRPC status, the first failure."""

    async def __aenter__(self) -> Self:
        options = [*CHANNEL_OPTIONS, ("grpc.use_local_subchannel_pool", 1)]  # or all channels share a connection
        senders = list[Send]()
        for _ in range(self._connections):
            channel = await self._stack.enter_async_context(grpc.aio.insecure_channel(self._address, options=options))
            senders.append(channel.unary_unary(_METHOD, None, None))  # bytes as they are
        self._senders = itertools.cycle(senders)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    async def try_once(self) -> None:
        """Sends a request and waits for its answer, so that what a load before has left is done.

        Raises:
            TranslaneError: it failed.
        """
        try:
            await next(self._senders)(next(self._requests), timeout=self._timeout)
        except grpc.aio.AioRpcError as error:
            raise exception_from(error, address=self._address) from error

    async def offer(
        self, times: Iterable[float], measurement: Measurement, *, warm_up: float, duration: float, bound: Bound | None
    ) -> None:
        """An open loop: a request at each of `times` [s], whatever became of those before.

        Requests that are due in the first `warm_up` seconds are sent and not measured. With a `bound`, the rest is
        given up as soon as that cannot be kept any more.
        """
        clock = asyncio.get_running_loop().time
        if bound is not None:
            times = list(itertools.takewhile(lambda at: at < warm_up + duration, times))
        watch = None if bound is None else _Watch(bound, sum(at >= warm_up for at in times), measurement)
        begun = clock()
        window = Window(begun + warm_up, begun + warm_up + duration)
        due_at: dict[asyncio.Task[None], float] = {}
        try:
            for at in times:
                due = begun + at
                if due >= window.end:
                    break
                await asyncio.sleep(max(0.0, due - clock()))  # even when it is late: others are to run as well
                task = asyncio.create_task(self._exchange(due, window, measurement))
                due_at[task] = due
                task.add_done_callback(due_at.pop)
                if watch and watch.is_hopeless(clock(), due_at.values(), window):
                    break
            while due_at and not (watch and watch.is_hopeless(clock(), due_at.values(), window)):
                await asyncio.wait(due_at, timeout=_LOOK_EVERY if watch else None)
            if not (watch and watch.hopeless):
                await asyncio.sleep(max(0.0, window.end - clock()))
        finally:
            await self._end(due_at, measurement, window, clock(), given_up=bool(watch and watch.hopeless))

    async def keep_busy(self, clients: int, measurement: Measurement, *, warm_up: float, duration: float) -> None:
        """A closed loop: clients that each send a request when the one before is answered."""
        clock = asyncio.get_running_loop().time
        begun = clock()
        window = Window(begun + warm_up, begun + warm_up + duration)

        async def client() -> None:
            while (now := clock()) < window.end:
                await self._exchange(now, window, measurement)

        due_at = {asyncio.create_task(client()): begun for _ in range(clients)}
        try:
            await asyncio.gather(*due_at)
        finally:
            await self._end(due_at, measurement, window, clock(), given_up=False)

    async def _exchange(self, due: float, window: Window, measurement: Measurement) -> None:
        clock = asyncio.get_running_loop().time
        sent, tokens = clock(), 0
        failure: TranslaneError | None = None
        try:
            response = await next(self._senders)(next(self._requests), timeout=self._timeout)
            tokens = tokens_of(response) if self._count_tokens else 0
        except grpc.aio.AioRpcError as error:
            failure = exception_from(error, address=self._address)
        except DecodeError:
            failure = Internal(f"what {self._address} answered is no TranslateResponse")
        except asyncio.CancelledError:
            measurement.unanswered += due in window
            raise
        now = clock()
        if failure is None and now in window:
            measurement.answered_within += self._texts_per_request
            measurement.tokens_within += tokens
        if due in window:
            measurement.lags.append(sent - due)
            if failure is None:
                measurement.latencies.append(now - due)
            else:
                measurement.errors[failure.code.name] += 1
                self.failures.setdefault(failure.code.name, failure)

    async def _end(
        self,
        tasks: Iterable[asyncio.Task[None]],
        measurement: Measurement,
        window: Window,
        now: float,
        *,
        given_up: bool,
    ) -> None:
        measurement.seconds = window.passed(now)
        measurement.given_up = given_up
        measurement.broken_off = measurement.seconds < window.end - window.start and not given_up
        left = list(tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


class _Watch:
    """Tells when a bound cannot be kept any more."""

    def __init__(self, bound: Bound, requests: int, measurement: Measurement) -> None:
        self._bound = bound
        self._allowed = bound.late_allowed(requests)
        self._measurement = measurement
        self._next = 0.0
        self.hopeless = False

    def is_hopeless(self, now: float, waiting: Iterable[float], window: Window) -> bool:
        """Whether more are late than may be; `waiting` are the times at which those that are not answered were due."""
        if now >= self._next:
            self._next = now + _LOOK_EVERY
            limit, measured = self._bound.seconds, self._measurement
            late = sum(latency > limit for latency in measured.latencies) + measured.errors.total()
            late += sum(now - due > limit for due in waiting if due in window)
            self.hopeless = late > self._allowed
        return self.hopeless


def tokens_of(response: bytes) -> int:
    """The target tokens in a serialised TranslateResponse to a request that asked for tokens."""
    message = pb.TranslateResponse.FromString(response)
    return sum(len(each.tokens) for one in message.translations for each in one.hypotheses)
