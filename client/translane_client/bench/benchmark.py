"""The measurements of one benchmark, one after the other."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import TextIO

from translane_client import decoding_flags
from translane_client.bench.arrivals import arrivals
from translane_client.bench.load import Bound, Load
from translane_client.bench.measurement import Measurement
from translane_client.bench.report import as_json, headings, notes, row
from translane_client.bench.search import RateSearch
from translane_client.bulk import CommandError
from translane_client.errors import TranslaneError
from translane_client.lines import LineWriter

_PROBE_CLIENTS = 64
_PROBE_SECONDS = 5.0
_PROBE_SHARE = 0.75
"""Of what many clients get at once: where the search for a rate begins."""


class Benchmark:
    """The measurements that the arguments ask for; `write` takes the lines of the table.

    Its parts are written as they are measured.
    """

    def __init__(self, arguments: argparse.Namespace, load: Load, write: Callable[[str], None]) -> None:
        self._arguments = arguments
        self._load = load
        self._write = write
        self._measurements = list[Measurement]()
        self._running: Measurement | None = None
        self._search: RateSearch | None = None

    @property
    def is_answered(self) -> bool:
        """Whether what was asked for was found: a rate that is kept, or else any answer."""
        if self._search:
            return self._search.kept is not None
        return any(measurement.latencies for measurement in self._measurements)

    async def run(self) -> None:
        """Measures. TranslaneError: the server refuses the requests."""
        arguments = self._arguments
        async with self._load:
            try:
                await self._load.try_once()
            except TranslaneError as error:
                raise CommandError(_told(error, arguments)) from error
            if arguments.find_rate:
                await self._find_rate()
                return
            self._write(headings(clients=bool(arguments.clients), tokens=arguments.tokens))
            for clients in arguments.clients or ():
                await self._measure(None, clients)
                self._show()
            for rate in arguments.rate or ():
                await self._measure(rate, None)
                self._show()

    async def _find_rate(self) -> None:
        arguments = self._arguments
        bound = Bound(arguments.p95)
        self._search = search = RateSearch(await self._first_rate(), arguments.trials)
        self._write(headings(clients=False, tokens=arguments.tokens))
        while (rate := search.next_rate()) is not None:
            measurement = await self._measure(rate, None, bound)
            search.tell(rate, is_kept=bound.is_kept_by(measurement))
            self._show("kept" if bound.is_kept_by(measurement) else "late")

    async def _first_rate(self) -> float:
        arguments = self._arguments
        if arguments.rate:
            return float(arguments.rate[0])
        seconds = min(_PROBE_SECONDS, arguments.duration)
        probe = Measurement(None, _PROBE_CLIENTS, arguments.texts_per_request)
        await self._load.keep_busy(_PROBE_CLIENTS, probe, warm_up=min(seconds, arguments.warm_up), duration=seconds)
        if not probe.answered_within:
            raise next(iter(self._load.failures.values()), CommandError(f"no answer within {seconds:g} s"))
        self._write(f"{_PROBE_CLIENTS} clients get {probe.sentences_per_second:.1f} sentences/s")
        return _PROBE_SHARE * probe.sentences_per_second

    async def _measure(self, rate: float | None, clients: int | None, bound: Bound | None = None) -> Measurement:
        arguments = self._arguments
        times = {"warm_up": arguments.warm_up, "duration": arguments.duration}
        if self._measurements:
            await self._settle()
        self._running = measurement = Measurement(rate, clients, arguments.texts_per_request)
        if clients is not None:
            await self._load.keep_busy(clients, measurement, **times)
        elif rate is not None:
            due = arrivals(rate / arguments.texts_per_request, arguments.schedule_seed)
            await self._load.offer(due, measurement, bound=bound, **times)
        return measurement

    async def _settle(self) -> None:
        """Waits for what the load before has left."""
        try:
            await self._load.try_once()
        except TranslaneError:
            return  # the measurement will tell

    def _show(self, verdict: str = "") -> None:
        """Writes the line of the measurement under way, which is over."""
        if self._running is None:
            return
        self._measurements.append(self._running)
        line = row(self._running, tokens=self._arguments.tokens)
        self._running = None
        self._write(f"{line}  {verdict}".rstrip())

    def finish(self, stderr: TextIO) -> None:
        """Writes what is left to tell: the line of a measurement that was broken off, the rate found, notes, JSON."""
        self._show()
        if self._search and self._measurements:
            self._write(_found(self._search, self._arguments.p95))
        for measurement in self._measurements:
            for note in notes(measurement):
                print(f"translane: {note}", file=stderr)
        for name, failure in self._load.failures.items():
            print(f"translane: {name}: {failure}", file=stderr)
        if self._arguments.json_file and self._measurements:
            report = {
                "server": self._arguments.server,
                "schedule_seed": self._arguments.schedule_seed,
                "measurements": [as_json(measurement) for measurement in self._measurements],
            }
            if self._search:
                report |= {"p95_bound_seconds": self._arguments.p95, "highest_rate": self._search.kept}
            with LineWriter(self._arguments.json_file, None, keep_breaks=True) as file:
                file.write(json.dumps(report, indent=2))


def _told(error: TranslaneError, arguments: argparse.Namespace) -> str:
    """The message, by the names of flags where it is about one."""
    for violation in error.violations:
        flag = decoding_flags.flag_of(violation.field, arguments)
        if flag and violation.description:
            return f"{flag}: {decoding_flags.with_flags(violation.description)}"
    return str(error)


def _found(search: RateSearch, bound: float) -> str:
    within = f"p95 within {bound * 1000:g} ms"
    if search.kept is None:
        return f"no rate was found that keeps {within}; the lowest that was tried is {search.lowest:.4g} sentences/s"
    return f"highest rate that keeps {within}: {search.kept:.4g} sentences/s"
