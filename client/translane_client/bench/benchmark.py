"""The measurements of one benchmark, one after the other; and the search for the highest rate that keeps a bound."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TextIO

from translane.errors import DeadlineExceeded, TranslaneError
from translane.progress import Progress
from translane_client.bench.load import Load
from translane_client.bench.measurement import Measurement, headings
from translane_client.bench.requests import arrivals

_PROBE_CLIENTS = 64
_PROBE_SECONDS = 5.0
_PROBE_SHARE = 0.75
"""A search begins at this share of the rate that many clients get together."""

_DRAWN_EVERY = 0.25  # seconds between two drawings of the bar

_STEP = 1.5
"""Factor between rates while no rate is known to be kept, or none to fail."""
_PRECISION = 1.04
"""The search ends where the lowest rate that fails is at most this times the highest rate kept."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a benchmark measures: some rates, or numbers of clients, or the highest rate that keeps a bound."""

    rate: Sequence[float]
    """Sentences per second, a measurement each; a search begins with the first, if there is one."""
    clients: Sequence[int]
    """Numbers of clients, a measurement each."""
    find_rate: bool
    p95: float
    """The bound of a search [s]."""
    trials: int
    """Most trials of a search."""
    warm_up: float
    """Seconds under load before each measurement."""
    duration: float
    """Seconds of each measurement."""
    texts_per_request: int
    schedule_seed: int
    tokens: bool
    """Whether the table has a column of tokens."""


class Benchmark:
    """Measures what a plan says, and hands each line of the table to `write` as soon as it is measured.

    On a `terminal`, a bar shows how far a measurement is.
    """

    def __init__(self, plan: Plan, load: Load, write: Callable[[str], None], terminal: TextIO | None = None) -> None:
        self._plan = plan
        self._load = load
        self._write = write
        self._terminal = terminal
        self._running: Measurement | None = None
        self._search: RateSearch | None = None
        self.measurements = list[Measurement]()
        """The measurements that are over."""

    @property
    def succeeded(self) -> bool:
        """Whether the search found a rate; without a search, whether the server answered at all."""
        if self._search:
            return self._search.kept is not None
        return any(measurement.latencies for measurement in self.measurements)

    async def run(self) -> None:
        """Measures. TranslaneError: the server refuses the requests, or does not answer."""
        plan = self._plan
        async with self._load:
            await self._load.try_once()
            if plan.find_rate:
                await self._find_rate()
                return
            self._write(headings(clients=bool(plan.clients), tokens=plan.tokens))
            loads = [*((None, clients) for clients in plan.clients), *((rate, None) for rate in plan.rate)]
            for rate, clients in loads:
                await self._measure(rate, clients)
                self._show()

    async def _find_rate(self) -> None:
        plan = self._plan
        self._search = search = RateSearch(plan.rate[0] if plan.rate else await self._first_rate(), plan.trials)
        self._write(headings(clients=False, tokens=plan.tokens))
        while (rate := search.next_rate()) is not None:
            is_kept = (await self._measure(rate, None, plan.p95)).keeps(plan.p95)
            search.tell(rate, is_kept=is_kept)
            self._show("kept" if is_kept else "late")

    async def _first_rate(self) -> float:
        plan = self._plan
        seconds = min(_PROBE_SECONDS, plan.duration)
        probe = Measurement(None, _PROBE_CLIENTS, plan.texts_per_request)
        await self._load.keep_busy(_PROBE_CLIENTS, probe, warm_up=min(seconds, plan.warm_up), duration=seconds)
        if not probe.answered_within:
            raise next(iter(self._load.failures.values()), DeadlineExceeded(f"no answer within {seconds:g} s"))
        self._write(f"{_PROBE_CLIENTS} clients get {probe.sentences_per_second:.1f} sentences/s")
        return _PROBE_SHARE * probe.sentences_per_second

    async def _measure(self, rate: float | None, clients: int | None, bound: float | None = None) -> Measurement:
        plan = self._plan
        times = {"warm_up": plan.warm_up, "duration": plan.duration}
        if self.measurements:  # wait until the server has done the requests of the measurement before
            with suppress(TranslaneError):  # which this measurement counts
                await self._load.try_once()
        self._running = measurement = Measurement(rate, clients, plan.texts_per_request)
        shown = asyncio.create_task(self._watch(measurement))
        try:
            if clients is not None:
                await self._load.keep_busy(clients, measurement, **times)
            elif rate is not None:
                due = arrivals(rate / plan.texts_per_request, plan.schedule_seed)
                await self._load.offer(due, measurement, bound=bound, **times)
        finally:
            shown.cancel()
            await asyncio.gather(shown, return_exceptions=True)
        return measurement

    async def _watch(self, measurement: Measurement) -> None:
        """Draws how much of the time is over, until it is cancelled."""
        seconds = self._plan.warm_up + self._plan.duration
        progress = Progress("sentences measured", total=seconds, stream=self._terminal)
        try:
            while True:
                await asyncio.sleep(_DRAWN_EVERY)
                progress.add(measurement.answered_within - progress.count, _DRAWN_EVERY)
        finally:
            progress.close(erase=True)

    def _show(self, verdict: str = "") -> None:
        """Writes the line of the measurement that has just ended, if there is one."""
        if self._running is None:
            return
        self.measurements.append(self._running)
        line = self._running.row(tokens=self._plan.tokens)
        self._running = None
        self._write(f"{line}  {verdict}".rstrip())

    def finish(self, note: Callable[[str], None]) -> None:
        """Writes the line of a measurement that was broken off, and the rate found; hands each remark to `note`."""
        self._show()
        if self._search and self.measurements:
            within = f"p95 within {self._plan.p95 * 1000:g} ms"
            if self._search.kept is None:
                lowest = f"{self._search.lowest:.4g} sentences/s"
                self._write(f"no rate was found that keeps {within}; the lowest rate tried is {lowest}")
            else:
                self._write(f"highest rate that keeps {within}: {self._search.kept:.4g} sentences/s")
        for measurement in self.measurements:
            for each in measurement.notes():
                note(each)
        for name, failure in self._load.failures.items():
            note(f"{name}: {failure}")

    def as_json(self) -> dict[str, Any]:
        """The measurements, and the outcome of the search, in base units."""
        plan = self._plan
        report: dict[str, Any] = {
            "schedule_seed": plan.schedule_seed,
            "measurements": [measurement.as_json() for measurement in self.measurements],
        }
        if self._search:
            report |= {"p95_bound_seconds": plan.p95, "highest_rate": self._search.kept}
        return report


class RateSearch:
    """Finds a rate that is kept and a rate that fails, then bisects between the two.

    The middle of two rates is their geometric mean. A rate counts as failed after two failures in a row, because a
    machine may stall for reasons of its own; second trials count, too.
    """

    def __init__(self, start: float, trials: int) -> None:
        self._start = start
        self._trials = trials
        self._again: float | None = None
        self.kept: float | None = None
        """The highest rate so far that was kept; None where none was."""
        self.failed = math.inf
        """The lowest rate so far that failed; infinity where none did."""
        self.lowest = start
        """The lowest rate that was tried; at first the rate to begin with."""

    def next_rate(self) -> float | None:
        """The next rate to try; None where the result is precise enough or the trials are used up."""
        if not self._trials:
            return None
        if self._again is not None:
            return self._again
        if self.kept is None:
            return self._start if math.isinf(self.failed) else self.failed / _STEP**2
        if math.isinf(self.failed):
            return self.kept * _STEP
        return math.sqrt(self.kept * self.failed) if self.failed / self.kept > _PRECISION else None

    def tell(self, rate: float, *, is_kept: bool) -> None:
        """Takes the outcome of a trial."""
        self._trials -= 1
        self.lowest = min(rate, self.lowest)
        if is_kept:
            self.kept = max(rate, self.kept or 0.0)
        elif self._again is None:
            self._again = rate
            return
        else:
            self.failed = min(rate, self.failed)
        self._again = None
