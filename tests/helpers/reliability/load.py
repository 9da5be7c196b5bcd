"""Callers that ask a service again as soon as they are answered, and compare each answer with the undisturbed one."""

import asyncio
import random
import statistics
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

import grpc

from helpers.client_calls import ClientCall, ask, ask_async, without_times
from helpers.failures import failure_of
from helpers.reliability.cases import Case, stream_answer, unary_answer
from helpers.reliability.form import form
from translane import AsyncClient, Client, RetryPolicy, TranslaneError
from translane.v1 import translation_pb2 as pb
from translane.v1 import translation_pb2_grpc

# Callers share no connection, and no call is tried again in secret: each failure counts.
CHANNEL_OPTIONS = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]

_PAUSE = 0.05  # after a refusal or a failure [seconds]
_REST = form(0.2, 0.0)  # after each call, where the load is to be light [seconds]

Answer = object  # is compared to the bit
_Value = TypeVar("_Value")


@asynccontextmanager
async def connected(address: str, options: Sequence[tuple[str, Any]] = CHANNEL_OPTIONS) -> AsyncIterator[Any]:
    """Yield a stub of the service that has a connection of its own."""
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        yield translation_pb2_grpc.TranslationServiceStub(channel)  # type: ignore[no-untyped-call]  # generated


class Oracle:
    """The undisturbed answers of cases: each is asked for alone.

    Args:
        address: of a server that does nothing else.
        cases: the cases.
    """

    def __init__(self, address: str, cases: Sequence[Case]) -> None:
        self.cases: list[Any] = list(cases)
        self._answers: dict[str, Answer] = {}
        with grpc.insecure_channel(address) as channel:
            stub: Any = translation_pb2_grpc.TranslationServiceStub(channel)  # type: ignore[no-untyped-call]  # generated
            for case in cases:
                asked = _method(stub, case)(case.request, timeout=60)
                self._answers[case.name] = stream_answer(list(asked)) if case.is_stream else unary_answer(asked)

    def is_right(self, case: Any, answer: Answer) -> bool:
        """Whether `answer` is the undisturbed one, to the bit."""
        return self._answers[case.name] == answer


class ClientOracle(Oracle):
    """The undisturbed answers of calls of the client."""

    def __init__(self, address: str, calls: Sequence[ClientCall]) -> None:
        self.cases = list(calls)
        with Client(address, timeout=60) as client:
            self._answers = {call.name: ask(client, call) for call in calls}


class Load:
    """Callers of a server, each with a connection of its own.

    Use it with `async with`: at the end, the callers wait for the answers that they still expect.

    Args:
        address: of the server.
        oracle: the cases to ask for, and their answers.
        callers: how many callers there are.
        cases: some of the oracle's.
        timeout: the deadline of each call [seconds].
        options: of each caller's channel.
        leaving: the probability that a caller cancels a call after a short time.
        seed: of the callers' choices.
    """

    def __init__(
        self,
        address: str,
        oracle: Oracle,
        callers: int,
        *,
        cases: Sequence[Any] | None = None,
        timeout: float = 30.0,
        options: Sequence[tuple[str, Any]] = CHANNEL_OPTIONS,
        leaving: float = 0.0,
        seed: int = 0,
    ) -> None:
        self._address = address
        self._oracle = oracle
        self._callers = callers
        self._cases = list(cases or oracle.cases)
        self._timeout = timeout
        self._options = options
        self._leaving = leaving
        self._seed = seed
        self._stopping = False
        self._rest = 0.0
        self._tasks: list[asyncio.Task[None]] = []
        self.answered = 0  # how many calls were answered rightly
        self.left = 0  # how many calls the callers cancelled
        self.wrong: list[str] = []  # the calls with another answer than the undisturbed one
        self.refused: Counter[str] = Counter()  # calls that were refused in the promised form, by code and reason
        self.failed: Counter[str] = Counter()  # all others
        self.latencies: list[float] = []  # of the answered calls [seconds]

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._caller(number)) for number in range(self._callers)]
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        self._stopping = True
        _, late = await asyncio.wait(self._tasks, timeout=self._timeout + 10)
        for task in late:  # each call should end at its deadline
            task.cancel()
            self.failed["no end"] += 1
        await asyncio.gather(*self._tasks, return_exceptions=error is not None)

    @property
    def lost(self) -> int:
        """How many calls were neither answered rightly nor refused in the promised form."""
        return len(self.wrong) + self.failed.total()

    @property
    def figures(self) -> dict[str, object]:
        """The load's figures for `Figures.add`."""
        return {
            "answered": self.answered,
            "refused": dict(self.refused),
            "wrong": len(self.wrong),
            "failed": dict(self.failed),
            "longest_answer_s": max(self.latencies, default=0.0),
            "median_answer_s": statistics.median(self.latencies) if self.latencies else 0.0,
        }

    def assert_nothing_lost(self, answers: int) -> None:
        """Assert that each call was answered rightly, and that there were so many."""
        assert self.failed == {}
        assert self.refused == {}
        assert self.wrong == []
        assert self.answered >= answers

    async def wait_for_answers(self, count: int, seconds: float = 60.0) -> None:
        """Wait until `count` more calls are answered. Returns after `seconds` in any case."""
        goal, deadline = self.answered + count, time.monotonic() + seconds
        while self.answered < goal and time.monotonic() < deadline:  # noqa: ASYNC110 other tasks count
            await asyncio.sleep(0.02)

    async def lightly(self, waiting: Awaitable[_Value]) -> _Value:
        """Wait for something, and have the callers rest between calls: what starts again has the processors."""
        self._rest = _REST
        try:
            return await waiting
        finally:
            self._rest = 0.0

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Callable[[Any], Awaitable[Answer]]]:
        """What a caller asks for a case with."""
        async with connected(self._address, self._options) as stub:

            async def ask(case: Case) -> Answer:
                call = _method(stub, case)(case.request, timeout=self._timeout)
                return stream_answer([each async for each in call]) if case.is_stream else unary_answer(await call)

            yield ask

    async def _caller(self, number: int) -> None:
        pick = random.Random(f"{self._seed} {number}")
        async with self._connected() as ask:
            while not self._stopping:
                case = pick.choice(self._cases)
                leaves = pick.uniform(0.0, 0.05) if pick.random() < self._leaving else None
                await self._call(case, ask(case), leaves)
                if self._rest:
                    await asyncio.sleep(self._rest)

    async def _call(self, case: Any, asking: Awaitable[Answer], leaves: float | None) -> None:
        """Wait for an answer; cancel the call after `leaves` seconds."""
        started = time.monotonic()
        try:
            async with asyncio.timeout(leaves):
                answer = await asking
        except TimeoutError:
            self.left += 1
        except grpc.aio.AioRpcError as error:
            failure = failure_of(error)
            (self.refused if failure.is_refusal else self.failed)[failure.name] += 1
            await asyncio.sleep(_PAUSE)
        except TranslaneError as error:  # the client has tried again, as often as it may
            self.failed[f"{type(error).__name__}({error.reason or error})"] += 1
            await asyncio.sleep(_PAUSE)
        except ValueError as error:
            self.wrong.append(f"{case.name}: {error}")
        else:
            self.latencies.append(time.monotonic() - started)
            if self._oracle.is_right(case, answer):
                self.answered += 1
            else:
                self.wrong.append(f"{case.name}: another answer than the undisturbed one")


class ClientLoad(Load):
    """Callers who share one client. The client tries again; what a caller gets is final.

    Args:
        address: of the service, as a client takes it.
        oracle: the calls, and their answers.
        callers: how many callers there are.
        retry: when the client tries again. None: the client's default.
        ca: the authority of the service's certificate, if it has one.
        timeout: the deadline of each call [seconds].
        settings: further ones of `Load`.
    """

    def __init__(
        self,
        address: str,
        oracle: ClientOracle,
        callers: int,
        *,
        retry: RetryPolicy | None = None,
        ca: Path | None = None,
        timeout: float = 60.0,
        **settings: Any,
    ) -> None:
        super().__init__(address, oracle, callers, timeout=timeout, **settings)
        self._client = AsyncClient(address, timeout=timeout, retry=retry, ca=ca)
        self._client._sleep = self._pause
        self.retries = 0  # how often the client tried again

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        await super().__aexit__(kind, error, trace)
        await self._client.close()

    @property
    def figures(self) -> dict[str, object]:
        return {"tried_again_by_the_client": self.retries, **super().figures}

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Callable[[Any], Awaitable[Answer]]]:
        yield lambda call: ask_async(self._client, call)

    async def _pause(self, seconds: float) -> None:
        self.retries += 1
        await asyncio.sleep(seconds)


@dataclass(frozen=True)
class CutStream:
    """What a caller got of a stream that lost its server."""

    call: ClientCall
    answer: Answer  # as `ask_async` returns it
    parts: int  # how many parts the text came in
    retries: int  # how often the client tried again

    @property
    def figures(self) -> dict[str, object]:
        """For `Figures.add`."""
        return {"tried_again_by_the_client": self.retries, "parts": self.parts}

    def assert_whole(self, oracle: ClientOracle) -> None:
        """Assert that the client went on with another server, and that the caller got the undisturbed answer."""
        assert oracle.is_right(self.call, self.answer)
        assert self.retries


async def cut_stream(
    address: str, call: ClientCall, strike: Callable[[], object], *, seconds: float, retry: RetryPolicy | None = None
) -> CutStream:
    """Read a stream with a deadline, and strike when its first part has come.

    Raises:
        TranslaneError: the stream did not go on.
    """
    retries = 0

    async def sleep(pause: float) -> None:
        nonlocal retries
        retries += 1
        await asyncio.sleep(pause)

    async with AsyncClient(address, timeout=seconds, retry=retry) as client:
        client._sleep = sleep
        stream = client.translate_stream(call.subject, **call.options)
        parts = [await anext(stream)]
        strike()
        parts += [part async for part in stream]
    return CutStream(call, ("".join(parts), without_times(stream.result)), len(parts), retries)


def _method(stub: Any, case: Case) -> Any:
    if case.is_stream:
        return stub.TranslateStream
    return stub.Score if isinstance(case.request, pb.ScoreRequest) else stub.Translate
