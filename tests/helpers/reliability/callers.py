"""Callers that call again as soon as they are answered, unless the load is to be light."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import Counter
from collections.abc import Awaitable
from types import TracebackType
from typing import Self, TypeVar

from helpers.reliability.form import form

_Value = TypeVar("_Value")

_REST = form(0.2, 0.0)  # after each call [seconds]


class Callers:
    """Callers of a service; a subclass says what each of them does.

    Use it with `async with`: at the end, the callers wait for the answers that they still expect.

    Args:
        callers: how many callers there are.
        timeout: the deadline of each call [seconds].
        seed: of the callers' choices.

    Attributes:
        wrong: the calls with another answer than the undisturbed one.
        failed: how many calls failed, by reason.
        latencies: of the answered calls [seconds].
    """

    def __init__(self, callers: int, timeout: float, seed: int) -> None:
        self._callers = callers
        self._timeout = timeout
        self._seed = seed
        self._stopping = False
        self._rest = 0.0
        self._tasks: list[asyncio.Task[None]] = []
        self.wrong: list[str] = []
        self.failed: Counter[str] = Counter()
        self.latencies: list[float] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._caller(number)) for number in range(self._callers)]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping = True
        _, late = await asyncio.wait(self._tasks, timeout=self._timeout + 10)
        for task in late:  # each call should end at its deadline
            task.cancel()
            self.failed["no end"] += 1
        await asyncio.gather(*self._tasks, return_exceptions=error is not None)

    @property
    def figures(self) -> dict[str, object]:
        """The load's figures for `Figures.add`."""
        return {
            "wrong": len(self.wrong),
            "failed": dict(self.failed),
            "longest_answer_s": max(self.latencies, default=0.0),
            "median_answer_s": statistics.median(self.latencies) if self.latencies else 0.0,
        }

    async def wait_for_answers(self, count: int, seconds: float = 60.0) -> None:
        """Wait until `count` more calls are answered. Returns after `seconds` in any case."""
        goal, deadline = self._answers() + count, time.monotonic() + seconds
        while self._answers() < goal and time.monotonic() < deadline:  # noqa: ASYNC110 other tasks count
            await asyncio.sleep(0.02)

    async def lightly(self, waiting: Awaitable[_Value]) -> _Value:
        """Wait for something, and have the callers rest between calls: what starts again has the processors."""
        self._rest = _REST
        try:
            return await waiting
        finally:
            self._rest = 0.0

    def _answers(self) -> int:
        """Return how many calls are answered."""
        raise NotImplementedError

    async def _caller(self, number: int) -> None:
        """Call again and again until `_stopping`."""
        raise NotImplementedError

    async def _have_rested(self) -> None:
        if self._rest:
            await asyncio.sleep(self._rest)
