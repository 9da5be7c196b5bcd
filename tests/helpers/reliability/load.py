"""Callers that ask a server without a pause, and compare each answer with the oracle's."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import grpc

from helpers.reliability.answers import Answer, Oracle, stream_answer, unary_answer
from helpers.reliability.callers import Callers
from helpers.reliability.cases import Case
from helpers.reliability.failures import Failure, failure_of
from translane.v1 import translation_pb2 as pb
from translane.v1 import translation_pb2_grpc

# Callers share no connection, and no call is tried again in secret: each failure counts.
CHANNEL_OPTIONS = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]

_PAUSE = 0.05  # after a refusal or a failure [seconds]


class Load(Callers):
    """Callers of a server, each with a connection of its own.

    Args:
        address: of the server.
        oracle: the cases to ask for, and their answers.
        callers: how many callers there are.
        timeout: the deadline of each call [seconds].
        metadata: sent with each call.
        options: of each caller's channel.
        leaving: the probability that a caller cancels a call after a short time.
        seed: of the callers' choices.

    Attributes:
        answered: how many calls were answered rightly.
        left: how many calls the callers cancelled.
        refused: calls that were refused in the promised form, by code and reason; all others have failed.
    """

    def __init__(
        self,
        address: str,
        oracle: Oracle,
        callers: int,
        *,
        cases: Sequence[Case] | None = None,
        timeout: float = 30.0,
        metadata: Sequence[tuple[str, str]] = (),
        options: Sequence[tuple[str, Any]] = CHANNEL_OPTIONS,
        leaving: float = 0.0,
        seed: int = 0,
    ) -> None:
        super().__init__(callers, timeout, seed)
        self._address = address
        self._oracle = oracle
        self._cases = list(cases or oracle.cases)
        self._metadata = tuple(metadata)
        self._options = options
        self._leaving = leaving
        self.answered = 0
        self.left = 0
        self.refused: Counter[str] = Counter()

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
            "lost": self.lost,
            **super().figures,
        }

    def _answers(self) -> int:
        return self.answered

    async def _caller(self, number: int) -> None:
        pick = random.Random(f"{self._seed} {number}")
        async with grpc.aio.insecure_channel(self._address, options=self._options) as channel:
            stub = translation_pb2_grpc.TranslationServiceStub(channel)  # type: ignore[no-untyped-call]  # generated
            while not self._stopping:
                case = pick.choice(self._cases)
                if pick.random() < self._leaving:
                    await self._leave(stub, case, pick.uniform(0.0, 0.05))
                else:
                    await self._call(stub, case)
                await self._have_rested()

    async def _call(self, stub: Any, case: Case) -> None:
        started = time.monotonic()
        try:
            answer = await ask(stub, case, self._timeout, self._metadata)
        except grpc.aio.AioRpcError as error:
            self._note_failure(failure_of(error))
            await asyncio.sleep(_PAUSE)
            return
        except ValueError as error:
            self.wrong.append(f"{case.name}: {error}")
            return
        self.latencies.append(time.monotonic() - started)
        if self._oracle.is_right(case, answer):
            self.answered += 1
        else:
            self.wrong.append(f"{case.name}: another answer than the undisturbed one")

    async def _leave(self, stub: Any, case: Case, seconds: float) -> None:
        """Ask, and cancel the call after `seconds`, unless it has ended."""
        asking = asyncio.create_task(ask(stub, case, self._timeout, self._metadata))
        done, _ = await asyncio.wait([asking], timeout=seconds)
        asking.cancel()
        try:
            await asking
        except asyncio.CancelledError:
            self.left += 1
        except grpc.aio.AioRpcError as error:
            self._note_failure(failure_of(error))
        else:
            self.left += not done
            self.answered += len(done)

    def _note_failure(self, failure: Failure) -> None:
        (self.refused if failure.is_refusal else self.failed)[failure.name] += 1


async def ask(stub: Any, case: Case, seconds: float, metadata: Sequence[tuple[str, str]] = ()) -> Answer:
    """Ask for a case over `stub`, of grpc.aio, with a deadline of `seconds`.

    Raises:
        grpc.aio.AioRpcError: the call failed.
        ValueError: the messages of a stream do not fit together.
    """
    if isinstance(case.request, pb.TranslateStreamRequest):
        call = stub.TranslateStream(case.request, timeout=seconds, metadata=metadata)
        return stream_answer([response async for response in call])
    method = stub.Score if isinstance(case.request, pb.ScoreRequest) else stub.Translate
    return unary_answer(await method(case.request, timeout=seconds, metadata=metadata))
