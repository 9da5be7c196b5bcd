"""The measurements of one benchmark, one after the other; and the search for the highest rate that keeps a bound."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TextIO

from translane.errors import DeadlineExceeded, TranslaneError
from translane.progress import Progress
from translane_client.bench.load import Load
from translane_client.bench.measurement import Measurement, headings
from translane_client.bench.requests import arrivals

_PROBE_CLIENTS = 64
_PROBE_SECONDS = 5.0
_PROBE_SHARE = 0.75  # A search begins at this share of the rate that many clients get together

_DRAWN_EVERY = 0.25  # seconds between two drawings of the bar

_STEP = 1.5  # factor between rates while no rate is known to be kept, or none to fail
_PRECISION = 1.04  # the search ends where the lowest rate that fails is at most this times the highest rate kept


@dataclass
class Benchmark:
    """Measures some rates, or numbers of clients; or searches the highest rate whose latency keeps a bound.

    Each line of the table goes to `write` as soon as it is measured. On a `terminal`, a bar shows how far it is.
    """

    load: Load
    write: Callable[[str], None]
    terminal: TextIO | None
    rate: Sequence[float]  # sentences per second, a measurement each; a search begins with the first, if there is one
    clients: Sequence[int]  # numbers of clients, a measurement each
    find_rate: bool
    p95: float  # the bound of a search [s]
    trials: int  # most trials of a search
    warm_up: float  # seconds under load before each measurement
    duration: float  # seconds of each measurement
    schedule_seed: int
    tokens: bool  # whether the table has a column of tokens
    measurements: list[Measurement] = field(default_factory=list)
    search: RateSearch | None = None

    @property
    def succeeded(self) -> bool:
        """Whether the search found a rate; without a search, whether the server answered at all."""
        if self.search:
            return self.search.kept is not None
        return any(measurement.latencies for measurement in self.measurements)

    async def run(self) -> None:
        """Measures. TranslaneError: the server refuses the requests, or does not answer."""
        async with self.load:
            await self.load.try_once()
            if self.find_rate:
                self.search = RateSearch(self.rate[0] if self.rate else await self._first_rate(), self.trials)
            self.write(headings(clients=bool(self.clients), tokens=self.tokens))
            for clients in self.clients:
                await self._measure(None, clients)
            while self.search and (rate := self.search.next_rate()) is not None:
                self.search.tell(rate, is_kept=(await self._measure(rate, None)).keeps(self.p95))
            for rate in () if self.search else self.rate:
                await self._measure(rate, None)

    async def _first_rate(self) -> float:
        seconds = min(_PROBE_SECONDS, self.duration)
        probe = self._begun(None, _PROBE_CLIENTS, min(seconds, self.warm_up), seconds)
        await self.load.keep_busy(_PROBE_CLIENTS, probe)
        if not probe.answered_within:
            raise next(iter(self.load.failures.values()), DeadlineExceeded(f"no answer within {seconds:g} s"))
        self.write(f"{_PROBE_CLIENTS} clients get {probe.sentences_per_second:.1f} sentences/s")
        return _PROBE_SHARE * probe.sentences_per_second

    def _begun(self, rate: float | None, clients: int | None, warm_up: float, duration: float) -> Measurement:
        start = asyncio.get_running_loop().time() + warm_up
        return Measurement(rate, clients, self.load.texts_per_request, start, start + duration)

    async def _measure(self, rate: float | None, clients: int | None) -> Measurement:
        """Measures one load, and writes its line, also of one that is broken off."""
        if self.measurements:  # wait until the server has done the requests of the measurement before
            with suppress(TranslaneError):  # which this measurement counts
                await self.load.try_once()
        measurement = self._begun(rate, clients, self.warm_up, self.duration)
        self.measurements.append(measurement)
        shown = asyncio.create_task(self._watch(measurement))
        try:
            if clients is not None:
                await self.load.keep_busy(clients, measurement)
            elif rate is not None:
                times = arrivals(rate / measurement.texts_per_request, self.schedule_seed)
                due = (measurement.start - self.warm_up + at for at in times)
                await self.load.offer(due, measurement, self.p95 if self.search else None)
        finally:
            shown.cancel()
            await asyncio.gather(shown, return_exceptions=True)
            is_judged = self.search and not measurement.broken_off
            verdict = ("kept" if measurement.keeps(self.p95) else "late") if is_judged else ""
            self.write(f"{measurement.row(tokens=self.tokens)}  {verdict}".rstrip())
        return measurement

    async def _watch(self, measurement: Measurement) -> None:
        """Draws how much of the time is over, until it is cancelled."""
        progress = Progress("sentences measured", total=self.warm_up + self.duration, stream=self.terminal)
        try:
            while True:
                await asyncio.sleep(_DRAWN_EVERY)
                progress.add(measurement.answered_within - progress.count, _DRAWN_EVERY)
        finally:
            progress.close(erase=True)

    def finish(self, note: Callable[[str], None]) -> None:
        """Writes the rate found; hands each remark to `note`."""
        if self.search and self.measurements:
            within = f"p95 within {self.p95 * 1000:g} ms"
            if self.search.kept is None:
                lowest = f"{self.search.lowest:.4g} sentences/s"
                self.write(f"no rate was found that keeps {within}; the lowest rate tried is {lowest}")
            else:
                self.write(f"highest rate that keeps {within}: {self.search.kept:.4g} sentences/s")
        for measurement in self.measurements:
            for each in measurement.notes():
                note(each)
        for name, failure in self.load.failures.items():
            note(f"{name}: {failure}")

    def as_json(self) -> dict[str, Any]:
        report: dict[str, Any] = {
            "schedule_seed": self.schedule_seed,
            "measurements": [measurement.as_json() for measurement in self.measurements],
        }
        if self.search:
            report |= {"p95_bound_seconds": self.p95, "highest_rate": self.search.kept}
        return report


class RateSearch:
    """Finds a rate that is kept and a rate that fails, then bisects between the two.

    The middle of two rates is their geometric mean. A rate counts as failed after two failures in a row, because a
    machine may stall for reasons of its own; second trials count, too.
    """

    def __init__(self, start: float, trials: int) -> None:
        self.kept: float | None = None  # the highest rate so far that was kept
        self.failed = math.inf  # the lowest rate so far that failed
        self.lowest = start  # the lowest rate that was tried; at first the rate to begin with
        self._next = start
        self._has_failed = False  # the next rate, once
        self._trials = trials

    def next_rate(self) -> float | None:
        """The next rate to try; None where the result is precise enough or the trials are used up."""
        is_precise = self.kept is not None and self.failed <= _PRECISION * self.kept
        return self._next if self._trials and not is_precise else None

    def tell(self, rate: float, *, is_kept: bool) -> None:
        self._trials -= 1
        self.lowest = min(rate, self.lowest)
        self._has_failed = not (is_kept or self._has_failed)
        if self._has_failed:
            return
        if is_kept:
            self.kept = max(rate, self.kept or 0.0)
        else:
            self.failed = min(rate, self.failed)
        if self.kept is None:
            self._next = self.failed / _STEP**2
        else:
            self._next = self.kept * _STEP if math.isinf(self.failed) else math.sqrt(self.kept * self.failed)
