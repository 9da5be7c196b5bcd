"""Gathers sentences that arrive one by one into batches, for an engine that decodes a batch from start to end."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False)
class Entry:
    """A sentence that waits, and where its result goes."""

    source: list[str]
    max_length: int
    beam_size: int
    since: float
    result: asyncio.Future[Any] = field(repr=False)


class DynamicBatcher:
    """Hands batches to `translate`, which blocks, on as many threads as batches may be under way.

    A batch goes as soon as there is room for it and either `size` sentences wait or the oldest has waited for `wait`
    seconds. While there is no room, sentences gather. Where there is room for several batches, what waits is shared
    among them, sorted by length, so that all workers have work and a batch's sentences end together.

    Args:
        translate: from sentences to their results, in order; all have the same beam size.
        size: most sentences of a batch.
        wait: longest that a sentence waits for company while there is room [s].
        under_way: most batches that are translated or queued at a time.
    """

    def __init__(
        self, translate: Callable[[Sequence[Entry]], Sequence[Any]], *, size: int, wait: float, under_way: int
    ) -> None:
        self._translate = translate
        self._size = size
        self._wait = wait
        self._room = under_way
        self._threads = ThreadPoolExecutor(under_way)
        self._waiting: list[Entry] = []
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, entries: Sequence[Entry]) -> None:
        """Take sentences, whose futures get the results."""
        self._waiting += entries
        self._go()

    def _go(self) -> None:
        """Begin the batches that can begin now, and see to it that the others begin in time."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
        self._waiting = [entry for entry in self._waiting if not entry.result.done()]  # the caller has gone
        loop = asyncio.get_running_loop()
        while self._waiting and self._room:
            left = self._waiting[0].since + self._wait - loop.time()
            if len(self._waiting) < self._size and left > 0:
                self._timer = loop.call_later(left, self._go)
                return
            for batch in self._cut():
                self._room -= 1
                task = loop.create_task(self._run(batch))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    def _cut(self) -> list[list[Entry]]:
        """Take out the oldest waiting sentences of one beam size, as a batch for each free place."""
        beam_size = self._waiting[0].beam_size
        taken = [entry for entry in self._waiting if entry.beam_size == beam_size][: self._size * self._room]
        gone = set(map(id, taken))
        self._waiting = [entry for entry in self._waiting if id(entry) not in gone]
        taken.sort(key=lambda entry: (entry.max_length, len(entry.source)), reverse=True)
        count = min(self._room, len(taken))
        bounds = [len(taken) * number // count for number in range(count + 1)]
        return [taken[first:last] for first, last in itertools.pairwise(bounds)]

    async def _run(self, batch: list[Entry]) -> None:
        try:
            results = await asyncio.get_running_loop().run_in_executor(self._threads, self._translate, batch)
        except Exception as error:  # noqa: BLE001 - the callers are told of any error
            for entry in batch:
                if not entry.result.done():
                    entry.result.set_exception(error)
        else:
            for entry, result in zip(batch, results, strict=True):
                if not entry.result.done():
                    entry.result.set_result(result)
        self._room += 1
        self._go()
