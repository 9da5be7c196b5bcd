"""Which waiting sentences enter the running batch, and in what order. Pure policy: no clock, no model."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

from translane_server.job import Job

AnyJob = TypeVar("AnyJob", bound=Job)


class WaitingJobs(Generic[AnyJob]):
    """Jobs that wait: higher priority first, equal priorities in order of arrival."""

    def __init__(self) -> None:
        self._arrivals = itertools.count()
        self._heap: list[tuple[int, int, AnyJob]] = []

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def first(self) -> AnyJob | None:
        """The one that is next, if there is one."""
        return self._heap[0][2] if self._heap else None

    def add(self, jobs: Iterable[AnyJob]) -> None:
        """Let `jobs` wait, behind those of their priority that wait already."""
        for job in jobs:
            heappush(self._heap, (-job.priority, next(self._arrivals), job))

    def pop(self) -> AnyJob:
        """Take out the one that is next."""
        return heappop(self._heap)[2]

    def remove(self, unwanted: Callable[[AnyJob], bool]) -> int:
        """Drop the jobs that are `unwanted`; return how many they were."""
        kept = [entry for entry in self._heap if not unwanted(entry[2])]
        removed = len(self._heap) - len(kept)
        if removed:
            heapify(kept)
            self._heap = kept
        return removed

    def clear(self) -> None:
        """Drop all."""
        self._heap = []


class Scheduler(WaitingJobs[AnyJob]):
    """The sentences that wait for rows.

    Encoding new sentences holds up the rows that are decoding, so one round admits a bounded amount of work: at most
    `encode_tokens` source tokens, counted as the encoder runs them, padded to the longest.
    """

    def __init__(self, encode_tokens: int) -> None:
        super().__init__()
        self._encode_tokens = encode_tokens

    def schedule(self, free_rows: int) -> list[AnyJob]:
        """Take out the jobs that enter now, in order.

        Together they take at most `free_rows`, and their padded size is at most `encode_tokens`; the first one enters
        however long it is. No job is passed over for a later one of its priority, not even one that waits for more rows
        than are free, so none starves but by higher priorities.
        """
        admitted: list[AnyJob] = []
        heap = self._heap
        longest = 0
        while heap:
            job = heap[0][2]
            free_rows -= job.rows
            if free_rows < 0:
                break
            longest = max(longest, job.source_length)
            if admitted and longest * (len(admitted) + 1) > self._encode_tokens:
                break
            admitted.append(heappop(heap)[2])
        return admitted
