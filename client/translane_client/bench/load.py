"""Puts load on a server: sends requests at given times, or from clients that wait for answers, and measures."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Self

import grpc
from google.protobuf.message import DecodeError

from translane.errors import Internal, TranslaneError
from translane.v1 import translation_pb2 as pb
from translane_client._core import channel_options
from translane_client._status import exception_from
from translane_client.bench.measurement import Measurement, late_requests_allowed
from translane_client.connection import Connection
from translane_client.retry import ANSWERED, ATTEMPTS

_METHOD = "/translane.v1.TranslationService/Translate"
_CHECK_EVERY = 0.1  # seconds between two checks of whether the bound can still be kept


@dataclass
class Load:
    """A server under load: an asynchronous context manager, which belongs to the event loop that runs then.

    Requests and answers stay bytes, because the generator may share the server's processors and has to cost little.
    """

    connection: Connection
    requests: Iterator[bytes]  # serialised TranslateRequests without end
    texts_per_request: int
    timeout: float  # deadline of each request [s]
    connections: int = 1  # connections to the server; requests take them in turn
    count_tokens: bool = False  # whether to count the tokens in the answers
    failures: dict[str, TranslaneError] = field(default_factory=dict)  # gRPC status → the first failure with it

    async def __aenter__(self) -> Self:
        self._stack = AsyncExitStack()
        options = [*channel_options(), ("grpc.use_local_subchannel_pool", 1)]  # else all channels share a connection
        opened = [self.connection.channel(grpc.aio, options) for _ in range(self.connections)]
        channels = [await self._stack.enter_async_context(channel) for channel in opened]
        self._senders: Iterator[Callable[..., Awaitable[bytes]]] = itertools.cycle(
            [channel.unary_unary(_METHOD, None, None) for channel in channels]
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def try_once(self) -> None:
        """Sends a request and waits for its answer: by then, the server has done the load before."""
        ATTEMPTS.debug("%s", self.connection.name)
        try:
            await self._send()
        except grpc.aio.AioRpcError as error:
            raise exception_from(error, connection=self.connection) from error
        ATTEMPTS.debug(ANSWERED)

    def _send(self) -> Awaitable[bytes]:
        metadata = self.connection.metadata()
        return next(self._senders)(next(self.requests), timeout=self.timeout, metadata=metadata)

    async def offer(self, times: Iterable[float], measurement: Measurement, bound: float | None) -> None:
        """An open loop: sends a request at each of `times`, without waiting for the requests before.

        Requests that are due before the measurement are sent and not measured. With a `bound` [s], the load ends as
        soon as too many requests are later than that.
        """
        clock = asyncio.get_running_loop().time
        times = itertools.takewhile(lambda due: due < measurement.end, times)
        late_allowed = math.inf
        if bound is not None:
            times = list(times)
            late_allowed = late_requests_allowed(sum(map(measurement.covers, times)))
        due_at: dict[asyncio.Task[None], float] = {}
        checked = clock()

        def is_given_up() -> bool:
            nonlocal checked
            now = clock()
            if bound is not None and now >= checked + _CHECK_EVERY:
                checked = now
                late = sum(now - due > bound for due in due_at.values() if measurement.covers(due))
                measurement.given_up = measurement.late(bound) + late > late_allowed
            return measurement.given_up

        try:
            for due in times:
                await asyncio.sleep(max(0.0, due - clock()))  # even when the request is late, so that other tasks run
                task = asyncio.create_task(self._exchange(due, measurement))
                due_at[task] = due
                task.add_done_callback(due_at.pop)
                if is_given_up():
                    break
            while due_at and not is_given_up():
                await asyncio.wait(due_at, timeout=_CHECK_EVERY if bound else None)
            if not measurement.given_up:
                await asyncio.sleep(max(0.0, measurement.end - clock()))
        finally:
            await _end(due_at, measurement)

    async def keep_busy(self, clients: int, measurement: Measurement) -> None:
        """A closed loop: each client sends a request as soon as its request before is answered."""
        clock = asyncio.get_running_loop().time

        async def client() -> None:
            while (now := clock()) < measurement.end:
                await self._exchange(now, measurement)

        tasks = [asyncio.create_task(client()) for _ in range(clients)]
        try:
            await asyncio.gather(*tasks)
        finally:
            await _end(tasks, measurement)

    async def _exchange(self, due: float, measurement: Measurement) -> None:
        clock = asyncio.get_running_loop().time
        sent, tokens = clock(), 0
        failure: TranslaneError | None = None
        try:
            response = await self._send()
            tokens = tokens_of(response) if self.count_tokens else 0
        except grpc.aio.AioRpcError as error:
            failure = exception_from(error, connection=self.connection)
        except DecodeError:
            failure = Internal(f"the answer of {self.connection.name} is no TranslateResponse")
        except asyncio.CancelledError:
            measurement.unanswered += measurement.covers(due)
            raise
        now = clock()
        if failure is None and measurement.covers(now):
            measurement.answered_within += self.texts_per_request
            measurement.tokens_within += tokens
        if measurement.covers(due):
            measurement.lags.append(sent - due)
            if failure is None:
                measurement.latencies.append(now - due)
            else:
                measurement.errors[failure.code.name] += 1
                self.failures.setdefault(failure.code.name, failure)


async def _end(tasks: Iterable[asyncio.Task[None]], measurement: Measurement) -> None:
    now = asyncio.get_running_loop().time()
    measurement.seconds = min(max(now, measurement.start), measurement.end) - measurement.start
    measurement.broken_off = now < measurement.end and not measurement.given_up
    left = list(tasks)
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


def tokens_of(response: bytes) -> int:
    """The number of target tokens in a serialised TranslateResponse, whose request asked for tokens."""
    message = pb.TranslateResponse.FromString(response)
    return sum(len(each.tokens) for one in message.translations for each in one.hypotheses)
