"""Latency of servers under load: Translane as shipped against CTranslate2 behind the same protocol.

    python -m benchmarks.runs.serving --plan quick --models demo    # some three minutes a cell
    python -m benchmarks.runs.serving                               # up to ten minutes a cell
    python -m benchmarks.runs.serving --models demo --searches greedy

Both servers are processes of this machine, and `translane bench` is a third one: sentences arrive at the times of a
Poisson process, one in a request, and wait for nobody. A cell is a model, a precision and a search. In each cell, the
benchmark first searches the settings of CTranslate2: library and workers × threads, then batch size, then the wait for
company and how many batches are under way; and for low load, the workers × threads that answer fastest.

Then the engines take turns in three measurements: how long answers take where there is hardly a load; the highest rate
that keeps 95% of the answers within the bound, where engines take turns at every trial; and how long answers take at
rates up to that one. Where a machine is shared, the server's processor time for a sentence tells most.

The demo model gets real sentences and ends their translations. The base and the tiny model have random weights: they
get random letters, as many as make the tokens of a real sentence, and every translation is as long as that sentence's
reference.
Both engines stop a beam search as soon as it has as many ended translations as beams.
"""

from __future__ import annotations

import math
import os
import random
import signal
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks import places
from benchmarks.engines.server_process import BenchError, ServerProcess, bench, ctranslate2, translane
from benchmarks.engines.settings import LIBRARIES, splits
from benchmarks.machine import Usage, describe
from benchmarks.measuring.turns import turns
from benchmarks.models.benchmarked import COMPUTE_TYPES, RANDOM, BenchmarkedModel
from benchmarks.models.workload import SEARCHES, read_pairs, read_texts
from benchmarks.report import tables
from benchmarks.report.results import ENGINES, write
from benchmarks.runs.flags import parsed, parser_of, prepared
from translane import Client
from translane_client.bench.benchmark import RateSearch
from translane_server.bundle.bundle import load_bundle

CLIENTS = 64  # of the closed loop that settings are chosen by
LOW_RATE = 2.0  # sentences/s: answers do not meet
COMPARED = 40  # sentences whose translations both engines are to agree on
LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class ServingPlan:
    """How long everything takes [s], and how often."""

    trial: float  # of a setting
    longest_trial: float  # where answers are few
    rate: float  # of a rate of the search or of the grid
    low_rate: float  # of the lowest one, which has few requests
    warm_up: float
    rounds: int
    trials: int  # rates of a search
    grid: int  # rates between the lowest one and what the faster engine can take
    batch_sizes: tuple[int, ...]
    waits: tuple[int, ...]  # ms


PLANS = {
    "quick": ServingPlan(2, 6, 3, 6, 0.7, 1, 4, 2, (), ()),
    "usual": ServingPlan(3, 9, 6, 8, 1.0, 1, 6, 2, (64,), (2,)),
    "full": ServingPlan(4, 12, 8, 12, 1.5, 2, 8, 4, (16, 64, 128), (2, 10)),
}


@dataclass(frozen=True)
class ServerSetting:
    """One way to run CTranslate2's server."""

    library: str
    workers: int
    threads: int
    batch_size: int = 32
    wait: int = 0  # ms
    queued: int = 0  # batches under way beyond those of the workers

    def __str__(self) -> str:
        told = f"{self.workers} × {self.threads} {self.library}, batches of {self.batch_size}"
        told += f", {self.wait} ms" if self.wait else ""
        return told + (f", {self.queued} queued" if self.queued else "")

    def start(self, model: BenchmarkedModel, precision: str) -> ServerProcess:
        flags = {
            "--workers": self.workers,
            "--threads": self.threads,
            "--batch-size": self.batch_size,
            "--wait": self.wait,
            "--under-way": self.workers + self.queued,
            "--compute-type": COMPUTE_TYPES[precision],
        }
        words = [str(word) for pair in flags.items() for word in pair]
        return ctranslate2(model.converted, model.bundle, words, LIBRARIES[self.library])


@dataclass(frozen=True)
class CellLoad:
    """The sentences and the search of a cell."""

    sentences: Path  # file of what is sent, a sentence on each line
    beam_size: int
    fixed: bool  # whether a tab and the length of its translation follow each sentence
    warm_up: float  # seconds before each measurement

    def measure(self, server: ServerProcess, *flags: str, duration: float, seed: int = 0) -> dict[str, Any]:
        """What `translane bench` reports. BenchError: there is no measurement."""
        fixed = ["--max-lengths"] if self.fixed else []
        search = ["--beam-size", str(self.beam_size), *(["--early-stopping"] if self.beam_size > 1 else [])]
        times = ["--duration", f"{duration}s", "--warm-up", f"{self.warm_up}s", "--schedule-seed", str(seed)]
        return bench(server.address, "-i", str(self.sentences), *fixed, *search, *times, *flags)


@dataclass(frozen=True)
class ServingCell:
    model: str
    precision: str
    search: str

    def __str__(self) -> str:
        return f"{self.model} {self.precision} {self.search}"


class CellBenchmark:
    """The measurements of one cell. The `bound` is the latency that 95% of the answers are to keep [s]."""

    def __init__(
        self, cell: ServingCell, model: BenchmarkedModel, sentences: Path, plan: ServingPlan, bound: float
    ) -> None:
        self._cell, self._model, self._plan = cell, model, plan
        self._bound = bound
        self._splits = splits(len(os.sched_getaffinity(0)))
        self._load = CellLoad(sentences, SEARCHES[cell.search], cell.model in RANDOM, plan.warm_up)

    def run(self) -> dict[str, Any]:
        trials: dict[str, float] = {}
        setting = self._choose(trials)
        quickest = self._quickest(setting, trials)
        with translane(self._model.bundle) as ours:
            with quickest.start(self._model, self._cell.precision) as peer:
                agreed = self._agreed(ours, peer)
                grid = self._grid({"translane": ours, "ctranslate2": peer}, [LOW_RATE])
            with setting.start(self._model, self._cell.precision) as peer:
                servers = {"translane": ours, "ctranslate2": peer}
                searches = self._highest_rates(servers)
                highest = {name: statistics.median(found) for name, found in searches.items()}
                rates = rates_between(min(highest.values()), max(highest.values()), self._plan.grid)
                grid += self._grid(servers, rates)
        return asdict(self._cell) | {
            "setting": str(setting),
            "setting_at_low_load": str(quickest),
            "setting_trials": trials,
            "same_translations": [agreed, COMPARED],
            "highest_rate": highest,
            "highest_rates": searches,
            "grid": grid,
        }

    def _choose(self, tried: dict[str, float]) -> ServerSetting:
        """CTranslate2's setting of most throughput; `tried` gets sentences/s, or a negative p95 [s], of each."""
        plan = self._plan
        ways = [ServerSetting(library, *split) for library in LIBRARIES for split in self._splits]
        best = self._best(ways, tried, self._throughput)
        sizes = [best, *(replace(best, batch_size=size) for size in plan.batch_sizes)]
        best = self._best(sizes, tried, self._throughput)
        if not plan.waits:
            return best
        rate = 0.75 * max(tried.values())
        others = [replace(best, wait=wait) for wait in plan.waits]
        others += [replace(best, queued=1), replace(best, queued=best.workers)]
        ways = [best, *dict.fromkeys(others)]
        return self._best(ways, tried, lambda server: -self._latency(server, rate, "p95"), " near it")

    def _quickest(self, setting: ServerSetting, tried: dict[str, float]) -> ServerSetting:
        """CTranslate2's setting that answers fastest where sentences come one by one: of all splits of the cores."""
        ways = [replace(setting, workers=workers, threads=threads, wait=0) for workers, threads in self._splits]
        return self._best(ways, tried, lambda server: -self._latency(server, LOW_RATE, "p50"), " at low load")

    def _best(
        self, settings: Sequence[ServerSetting], tried: dict[str, float], value: Any, suffix: str = ""
    ) -> ServerSetting:
        values = {}
        for setting in settings:
            if (name := f"{setting}{suffix}") not in tried:
                with setting.start(self._model, self._cell.precision) as server:
                    tried[name] = value(server)
            values[setting] = tried[name]
        return max(values, key=lambda setting: values[setting])

    def _throughput(self, server: ServerProcess) -> float:
        """Sentences/s with more than enough clients; measured for longer where answers are few."""
        duration = self._plan.trial
        while True:
            try:
                report = self._load.measure(server, "--clients", str(CLIENTS), "--timeout", "30s", duration=duration)
            except BenchError:  # threads that wait for each other by spinning can take ages where processors are shared
                return 0.0
            rate: float = report["measurements"][0]["answered_per_second"]
            if rate * duration >= 2 * CLIENTS or 3 * duration > self._plan.longest_trial:
                return rate
            duration *= 3

    def _latency(self, server: ServerProcess, rate: float, quantile: str) -> float:
        duration = self._plan.low_rate / 2 if rate == LOW_RATE else self._plan.trial
        measured = self._load.measure(server, "--rate", f"{rate:.6g}", duration=duration)["measurements"][0]
        seconds: float | None = measured["latency_seconds"][quantile]
        return seconds or math.inf

    def _highest_rates(self, servers: Mapping[str, ServerProcess]) -> dict[str, list[float]]:
        """The highest rates that keep the bound, of every round; the engines take turns at every trial."""
        found: dict[str, list[float]] = {name: [] for name in ENGINES}
        begin = {name: max(0.5, 0.75 * self._throughput(servers[name])) for name in ENGINES}
        for number in range(self._plan.rounds):
            searches = {name: RateSearch(begin[name], self._plan.trials) for name in ENGINES}
            for name in engines_in_turn(self._plan.trials):
                if (rate := searches[name].next_rate()) is not None:
                    searches[name].tell(rate, is_kept=self._keeps(servers[name], rate, seed=number))
            for name, search in searches.items():
                found[name].append(search.kept or 0.0)
                begin[name] = search.kept or search.lowest
        return found

    def _keeps(self, server: ServerProcess, rate: float, seed: int) -> bool:
        flags = ["--find-rate", "--p95", f"{self._bound}s", "--rate", f"{rate:.6g}", "--trials", "1"]
        return self._load.measure(server, *flags, duration=self._plan.rate, seed=seed)["highest_rate"] is not None

    def _grid(self, servers: Mapping[str, ServerProcess], rates: Sequence[float]) -> list[dict[str, Any]]:
        """For each rate and engine, the measurements of all rounds."""
        rows: list[dict[str, Any]] = [{"rate": rate, "translane": [], "ctranslate2": []} for rate in rates]
        for row in rows:
            duration = self._plan.low_rate if row["rate"] == LOW_RATE else self._plan.rate
            for name in engines_in_turn(self._plan.rounds):
                flags = ["--rate", f"{row['rate']:.4g}", "--timeout", "10s"]
                used = servers[name].cpu_seconds()
                report = self._load.measure(servers[name], *flags, duration=duration, seed=len(row[name]))
                (measured,) = report["measurements"]
                sent = row["rate"] * (duration + self._plan.warm_up)  # on average, and the same for both engines
                measured["cpu_seconds_per_sentence"] = (servers[name].cpu_seconds() - used) / sent
                row[name].append(measured)
        return rows

    def _agreed(self, ours: ServerProcess, peer: ServerProcess) -> int:
        """How many sentences both translate alike."""
        lines = self._load.sentences.read_text(encoding="utf-8").splitlines()[:COMPARED]
        options: dict[str, Any] = {"beam_size": self._load.beam_size, "early_stopping": True}
        texts: list[list[str]] = []
        for server in (ours, peer):
            with Client(server.address) as client:
                if self._load.fixed:
                    pairs = [line.split("\t") for line in lines]
                    found = [client.translate(text, max_length=int(length), **options) for text, length in pairs]
                else:
                    found = client.translate(lines, **options)
            texts.append([translation.text for translation in found])
        return sum(our == their for our, their in zip(*texts, strict=True))


def engines_in_turn(rounds: int) -> list[str]:
    """The engines in turn, every other round backwards."""
    return [name for order in turns(ENGINES, rounds) for name in order]


def rates_between(lower: float, higher: float, count: int) -> list[float]:
    """`count` rates above the lowest one, up to 0.9 of what the faster engine can take."""
    lowest, highest = max(LOW_RATE, (0.5 if count > 2 else 0.9) * lower), 0.9 * higher
    steps = [lowest * (highest / lowest) ** (number / max(1, count - 1)) for number in range(count)]
    return [rate for rate in steps if rate > 1.1 * LOW_RATE]


def write_sentences(path: Path, model: str, sentences: Path) -> Path:
    """The file of what a model gets: real texts, or random letters and the length of the reference."""
    pairs = read_pairs(sentences, load_bundle(places.DEMO))
    if model in RANDOM:
        pick = random.Random(0)
        lines = [
            f"{''.join(pick.choices(LETTERS, k=max(1, len(pair.source) - 2)))}\t{pair.reference_length}"
            for pair in pairs
        ]
    else:
        lines = read_texts(sentences)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the servers are ended
    parser = parser_of(__doc__, searches=True, devices=["cpu"])
    parser.add_argument("--plan", choices=PLANS, default="full", help="how long and how often everything is measured")
    parser.add_argument("--bound", type=float, default=0.5, help="what 95%% of the answers are to keep [s]")
    arguments = parsed(parser, "serving")
    plan = PLANS[arguments.plan]
    record: dict[str, Any] = {"machine": describe(), "plan": asdict(plan), "bound": arguments.bound, "cells": []}
    started, usage = time.monotonic(), Usage()
    for name, precision, model in prepared(arguments):
        sentences = write_sentences(arguments.output.parent / f"serving-{name}.txt", name, arguments.sentences)
        for search in arguments.searches:
            cell = ServingCell(name, precision, search)
            found = CellBenchmark(cell, model, sentences, plan, arguments.bound).run()
            record["cells"].append(found)
            record["usage"] = usage.so_far()
            write(arguments.output, record)
            rates = ", ".join(f"{engine} {rate:.1f}" for engine, rate in found["highest_rate"].items())
            alike = "{} of {} translations alike".format(*found["same_translations"])
            print(
                f"{time.monotonic() - started:5.0f} s  {cell}: {rates} sentences/s ({found['setting']}), {alike}",
                flush=True,
            )
    if record["cells"]:
        print("\n".join(["", *tables.serving(record), "", f"all measurements are in {arguments.output}"]))


if __name__ == "__main__":
    main()
