"""Latency of servers under load: Translane as shipped against CTranslate2 behind the same protocol.

    python benchmarks/serving.py --quick                # less than eight minutes
    python benchmarks/serving.py                        # less than forty
    python benchmarks/serving.py --models demo --searches greedy

Both servers are processes of this machine, and `translane bench` is a third one: sentences arrive at the times of a
Poisson process, one in a request, and wait for nobody. A cell is a model, a precision and a search. In each, first the
settings of CTranslate2 are searched: library and workers × threads, then batch size, then the wait for company and how
many batches are under way; and for low load, the workers × threads that answer fastest.

Then the engines take turns: how long do answers take where there is hardly a load, which is the highest rate that keeps
95% of the answers within the bound (here they take turns at every trial), and how long do answers take at rates up to
there. The processor time of the server for a sentence tells most where a machine is shared.

The demo model gets real sentences and ends them itself. The base model has random weights: it gets random letters, as
many as make the tokens of a real sentence, and every translation is as long as that sentence's reference. Both engines
stop a beam search as soon as they have as many ended translations as beams.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
import signal
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarked_models import DEMO, NAMES, PRECISIONS, Measured, Unavailable, prepare
from contest import LIBRARIES
from ctranslate2_settings import Setting, replaced, splits_of_all
from machine import Usage, describe
from offline import SEARCHES, SENTENCES
from served import ENGINES, BenchError, ServerProcess, bench, translane
from serving_tables import tables
from workload import read_pairs

from translane_client import Client
from translane_client.bench.search import RateSearch
from translane_server.bundle import load_bundle

ROOT = Path(__file__).resolve().parents[1]
CLIENTS = 64  # of the closed loop that settings are chosen by
LOW_RATE = 2.0  # sentences/s: answers do not meet
COMPARED = 40  # sentences whose translations both engines are to agree on
LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class Plan:
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


FULL = Plan(4, 12, 8, 12, 1.5, 2, 8, 4, (16, 64, 128), (2, 10))
QUICK = Plan(2, 6, 3, 6, 0.7, 1, 5, 2, (), ())


@dataclass(frozen=True)
class Cell:
    model: str
    precision: str
    search: str

    def __str__(self) -> str:
        return f"{self.model} {self.precision} {self.search}"


class CellBenchmark:
    """The measurements of one cell.

    Args:
        cell: which.
        model: as both engines read it.
        sentences: file of what is sent.
        plan: how long.
        bound: what 95% of the answers are to keep [s].
        flags: further ones of Translane's server.
    """

    def __init__(
        self, cell: Cell, model: Measured, sentences: Path, plan: Plan, bound: float, flags: Sequence[str]
    ) -> None:
        self._cell, self._model, self._sentences, self._plan = cell, model, sentences, plan
        self._bound = bound
        self._flags = flags
        self._beam_size = SEARCHES[cell.search]
        self._lengths = cell.model == "base"

    def run(self) -> dict[str, Any]:
        trials: dict[str, float] = {}
        setting = self._choose(trials)
        quickest = self._quickest(setting, trials)
        with translane(self._model.bundle, self._flags) as ours:
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

    def _choose(self, tried: dict[str, float]) -> Setting:
        """CTranslate2's setting that takes the most; `tried` gets what each got: sentences/s, or a negative p95 [s]."""
        plan = self._plan
        ways = [Setting(library, *split) for library in LIBRARIES for split in splits_of_all()]
        best = self._best(ways, tried, self._throughput)
        sizes = [best, *(replaced(best, batch_size=size) for size in plan.batch_sizes)]
        best = self._best(sizes, tried, self._throughput)
        if not plan.waits:
            return best
        rate = 0.75 * max(tried.values())
        others = [replaced(best, wait=wait) for wait in plan.waits]
        others += [replaced(best, queued=1), replaced(best, queued=best.workers)]
        ways = [best, *dict.fromkeys(others)]
        return self._best(ways, tried, lambda server: -self._latency(server, rate, "p95"), " near it")

    def _quickest(self, setting: Setting, tried: dict[str, float]) -> Setting:
        """The one that answers fastest where sentences come one by one: another split of the cores, and no waiting."""
        ways = [replaced(setting, workers=workers, threads=threads, wait=0) for workers, threads in splits_of_all()]
        return self._best(ways, tried, lambda server: -self._latency(server, LOW_RATE, "p50"), " at low load")

    def _best(self, settings: Sequence[Setting], tried: dict[str, float], value: Any, suffix: str = "") -> Setting:
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
                report = self._bench(server, "--clients", str(CLIENTS), "--timeout", "30s", duration=duration)
            except BenchError:  # threads that wait for each other by spinning can take ages where processors are shared
                return 0.0
            rate = report["measurements"][0]["answered_per_second"]
            if rate * duration >= 2 * CLIENTS or 3 * duration > self._plan.longest_trial:
                return rate
            duration *= 3

    def _latency(self, server: ServerProcess, rate: float, quantile: str) -> float:
        duration = self._plan.low_rate / 2 if rate == LOW_RATE else self._plan.trial
        measured = self._bench(server, "--rate", f"{rate:.6g}", duration=duration)["measurements"][0]
        return measured["latency_seconds"][quantile] or math.inf

    def _highest_rates(self, servers: Mapping[str, ServerProcess]) -> dict[str, list[float]]:
        """The highest rates that keep the bound, of every round; the engines take turns at every trial."""
        found: dict[str, list[float]] = {name: [] for name in ENGINES}
        begin = {name: max(0.5, 0.75 * self._throughput(servers[name])) for name in ENGINES}
        for number in range(self._plan.rounds):
            searches = {name: RateSearch(begin[name], self._plan.trials) for name in ENGINES}
            for name in turns(self._plan.trials):
                if (rate := searches[name].next_rate()) is not None:
                    searches[name].tell(rate, is_kept=self._keeps(servers[name], rate, seed=number))
            for name, search in searches.items():
                found[name].append(search.kept or 0.0)
                begin[name] = search.kept or search.lowest
        return found

    def _keeps(self, server: ServerProcess, rate: float, seed: int) -> bool:
        flags = ["--find-rate", "--p95", f"{self._bound}s", "--rate", f"{rate:.6g}", "--trials", "1"]
        return self._bench(server, *flags, duration=self._plan.rate, seed=seed)["highest_rate"] is not None

    def _grid(self, servers: Mapping[str, ServerProcess], rates: Sequence[float]) -> list[dict[str, Any]]:
        """For each rate and engine, the measurements of all rounds."""
        rows: list[dict[str, Any]] = [{"rate": rate, "translane": [], "ctranslate2": []} for rate in rates]
        for row in rows:
            duration = self._plan.low_rate if row["rate"] == LOW_RATE else self._plan.rate
            for name in turns(self._plan.rounds):
                flags = ["--rate", f"{row['rate']:.4g}", "--timeout", "10s"]
                used = servers[name].cpu_seconds()
                report = self._bench(servers[name], *flags, duration=duration, seed=len(row[name]))
                (measured,) = report["measurements"]
                sent = row["rate"] * (duration + self._plan.warm_up)  # on average, and the same for both engines
                measured["cpu_seconds_per_sentence"] = (servers[name].cpu_seconds() - used) / sent
                row[name].append(measured)
        return rows

    def _bench(self, server: ServerProcess, *flags: str, duration: float, seed: int = 0) -> dict[str, Any]:
        fixed = ["--max-lengths"] if self._lengths else []
        search = ["--beam-size", str(self._beam_size), *(["--early-stopping"] if self._beam_size > 1 else [])]
        times = ["--duration", f"{duration}s", "--warm-up", f"{self._plan.warm_up}s", "--schedule-seed", str(seed)]
        return bench(server.address, "-i", str(self._sentences), *fixed, *search, *times, *flags)

    def _agreed(self, ours: ServerProcess, peer: ServerProcess) -> int:
        """How many sentences both translate alike."""
        lines = self._sentences.read_text(encoding="utf-8").splitlines()[:COMPARED]
        options: dict[str, Any] = {"beam_size": self._beam_size, "early_stopping": True} if self._beam_size > 1 else {}
        texts: list[list[str]] = []
        for server in (ours, peer):
            with Client(server.address) as client:
                if self._lengths:
                    pairs = [line.split("\t") for line in lines]
                    found = [client.translate(text, max_length=int(length), **options) for text, length in pairs]
                else:
                    found = client.translate(lines, **options)
            texts.append([translation.text for translation in found])
        return sum(our == their for our, their in zip(*texts, strict=True))


def turns(rounds: int) -> list[str]:
    """The engines in turn, every other round backwards."""
    return [name for number in range(rounds) for name in (ENGINES if number % 2 == 0 else ENGINES[::-1])]


def rates_between(lower: float, higher: float, count: int) -> list[float]:
    """`count` rates above the lowest one, up to 0.9 of what the faster engine can take."""
    lowest, highest = max(LOW_RATE, (0.5 if count > 2 else 0.9) * lower), 0.9 * higher
    steps = [lowest * (highest / lowest) ** (number / max(1, count - 1)) for number in range(count)]
    return [rate for rate in steps if rate > 1.1 * LOW_RATE]


def write_sentences(path: Path, model: str, sentences: Path) -> Path:
    """The file of what a model gets: real texts, or random letters and the length of the reference."""
    pairs = read_pairs(sentences, load_bundle(DEMO))
    if model == "base":
        pick = random.Random(0)
        lines = [
            f"{''.join(pick.choices(LETTERS, k=max(1, len(pair.source) - 2)))}\t{pair.reference_length}"
            for pair in pairs
        ]
    else:
        import gzip

        with gzip.open(sentences, "rt", encoding="utf-8") as file:
            lines = [line.split("\t")[0] for line in file]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the servers are ended
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round, shorter, and fewer settings")
    parser.add_argument("--models", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=["fp32"])
    parser.add_argument("--searches", nargs="+", choices=SEARCHES, default=tuple(SEARCHES))
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--bound", type=float, default=0.5, help="what 95%% of the answers are to keep [s]")
    parser.add_argument("--bundle", action="append", default=[], metavar="MODEL-PRECISION=FOLDER")
    parser.add_argument("--server-flag", action="append", default=[], metavar="FLAG", help="of translane-server")
    parser.add_argument("--sentences", type=Path, default=SENTENCES, help="source, tab, reference on each line")
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "bench" / "models", help="of converted models")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "runs" / "bench" / "serving.json")
    arguments = parser.parse_args()
    plan = QUICK if arguments.quick else FULL
    if arguments.rounds:
        plan = Plan(**asdict(plan) | {"rounds": arguments.rounds})
    bundles = {name: Path(folder) for name, _, folder in (text.partition("=") for text in arguments.bundle)}
    record: dict[str, Any] = {"machine": describe(), "plan": asdict(plan), "bound": arguments.bound, "cells": []}
    started, usage = time.monotonic(), Usage()
    for name, precision in itertools.product(arguments.models, arguments.precisions):
        try:
            model = prepare(name, precision, arguments.folder, bundles.get(f"{name}-{precision}"))
        except Unavailable as reason:
            print(f"skipped: {reason}", file=sys.stderr)
            continue
        sentences = write_sentences(arguments.output.parent / f"serving-{name}.txt", name, arguments.sentences)
        for search in arguments.searches:
            cell = Cell(name, precision, search)
            found = CellBenchmark(cell, model, sentences, plan, arguments.bound, arguments.server_flag).run()
            record["cells"].append(found)
            record["usage"] = usage.so_far()
            arguments.output.write_text(json.dumps(record, indent=1))
            rates = ", ".join(f"{engine} {rate:.1f}" for engine, rate in found["highest_rate"].items())
            alike = "{} of {} translations alike".format(*found["same_translations"])
            print(
                f"{time.monotonic() - started:5.0f} s  {cell}: {rates} sentences/s ({found['setting']}), {alike}",
                flush=True,
            )
    table = "\n".join(tables(record))
    arguments.output.with_suffix(".md").write_text(table + "\n", encoding="utf-8")
    print(f"\n{table}\n\n{time.monotonic() - started:.0f} seconds; all measurements are in {arguments.output}")


if __name__ == "__main__":
    main()
