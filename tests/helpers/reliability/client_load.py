"""Callers that ask through the client without a pause. The client tries again; what a caller gets is final."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from helpers.client_calls import Answer, ClientCall, ask, ask_async
from helpers.reliability.callers import Callers
from translane import AsyncClient, Client, RetryPolicy, TranslaneError


class ClientOracle:
    """The undisturbed answers of calls: the calls are made one after the other.

    Args:
        address: of a server that does nothing else.
        calls: the calls.
    """

    def __init__(self, address: str, calls: Sequence[ClientCall]) -> None:
        self.calls = list(calls)
        with Client(address, timeout=60) as client:
            self._answers: dict[str, Answer] = {call.name: ask(client, call) for call in calls}

    def is_right(self, call: ClientCall, answer: Answer) -> bool:
        """Whether `answer` is the undisturbed one, to the bit."""
        return self._answers[call.name] == answer


class ClientLoad(Callers):
    """Callers of a service, who share one client.

    Args:
        address: of the service, as a client takes it.
        oracle: the calls, and their answers.
        callers: how many callers there are.
        timeout: the deadline of each call [seconds].
        retry: when the client tries again. None: the client's default.
        ca: the authority of the service's certificate, if it has one.
        seed: of the callers' choices.

    Attributes:
        calls: how many calls were made.
        answers: how often each call was answered, by the call's number.
        retries: how often the client tried again.
    """

    def __init__(
        self,
        address: str,
        oracle: ClientOracle,
        callers: int,
        *,
        calls: Sequence[ClientCall] | None = None,
        timeout: float = 60.0,
        retry: RetryPolicy | None = None,
        ca: Path | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(callers, timeout, seed)
        self._client = AsyncClient(address, timeout=timeout, retry=retry, ca=ca)
        self._client._sleep = self._pause
        self._oracle = oracle
        self._choices = list(calls or oracle.calls)
        self.calls = 0
        self.answers: Counter[int] = Counter()
        self.retries = 0

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await super().__aexit__(kind, error, trace)
        await self._client.close()

    @property
    def lost(self) -> int:
        """How many calls have no right answer."""
        return self.calls - len(self.answers) + len(self.wrong)

    @property
    def doubled(self) -> int:
        """How many answers came beside a call's first one."""
        return self.answers.total() - len(self.answers)

    @property
    def figures(self) -> dict[str, object]:
        """The load's figures for `Figures.add`."""
        return {
            "calls": self.calls,
            "tried_again_by_the_client": self.retries,
            "lost": self.lost,
            "doubled": self.doubled,
            **super().figures,
        }

    def assert_nothing_lost(self, calls: int) -> None:
        """Assert that there were so many calls, and that each was answered once and rightly."""
        assert self.failed == {}
        assert self.wrong == []
        assert (self.lost, self.doubled) == (0, 0)
        assert self.calls >= calls

    def _answers(self) -> int:
        return len(self.answers)

    async def _caller(self, number: int) -> None:
        pick = random.Random(f"{self._seed} {number}")
        while not self._stopping:
            await self._call(self.calls, pick.choice(self._choices))
            await self._have_rested()

    async def _call(self, number: int, call: ClientCall) -> None:
        self.calls += 1
        started = time.monotonic()
        try:
            answer = await ask_async(self._client, call)
        except TranslaneError as error:
            self.failed[f"{type(error).__name__}({error.reason or error})"] += 1
            await asyncio.sleep(0.05)
            return
        self.latencies.append(time.monotonic() - started)
        self.answers[number] += 1
        if not self._oracle.is_right(call, answer):
            self.wrong.append(call.name)

    async def _pause(self, seconds: float) -> None:
        self.retries += 1
        await asyncio.sleep(seconds)
