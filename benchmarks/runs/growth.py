"""How the time of a step, memory and start-up grow, in Translane and in CTranslate2.

    python -m benchmarks.runs.growth
    python -m benchmarks.runs.growth --models demo --rows 1 16 256

One worker of each engine decodes greedily. Neither engine tells how long a step takes. So the time of a step is the
time that a longer translation takes beyond a shorter one, divided by the difference of their lengths: encoding and
everything else that is done once drops out. With one thread, the time is processor time.

Memory is resident memory after decoding, of a process and its descendants, weights and interpreters included; memory
that processes share counts in equal parts for each. Translane has room for as many rows and tokens as the measurement
needs. Start-up is the time from a process that has imported its engine to the first
translation. Translane's process starts another one meanwhile, which decodes.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.engines.decoder_process import DecoderProcess
from benchmarks.engines.settings import CTRANSLATE2, LIBRARIES, TRANSLANE
from benchmarks.machine import Usage, describe
from benchmarks.models.benchmarked import COMPUTE_TYPES, BenchmarkedModel
from benchmarks.models.workload import Load
from benchmarks.report import tables
from benchmarks.report.results import ENGINES, write
from benchmarks.runs.flags import parsed, parser_of, prepared

SOURCE_LENGTH = 12  # tokens, the last of which ends the sentence
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
SHORT, LONG = 8, 32  # lengths that a step over many rows is measured between


@dataclass(frozen=True)
class Runner:
    """An engine in a process, on one model."""

    name: str
    process: DecoderProcess
    model: Path
    options: dict[str, Any]

    def open(self, rows: int, length: int) -> float:
        """Make room for so many rows of so many tokens; return the seconds it took."""
        room = {}
        if self.name == "translane":
            room = {"rows": rows, "source_tokens": SOURCE_LENGTH, "target_tokens": length, "ends": False}
        return self.process.open(self.model, **self.options, **room)

    def seconds(self, load: Load, clock: str) -> float:
        """How long decoding the load takes."""
        self.process.load(load)
        seconds: float = getattr(self.process.decode(), clock)
        return seconds


RunnerOf = Callable[[str, ExitStack], Runner]
"""Makes the runner of an engine, whose process ends with the stack."""


def load_of(rows: int, length: int) -> Load:
    """As many random sentences as rows, and translations of one length."""
    sources = tuple((*range(10 + row % 7, 9 + row % 7 + SOURCE_LENGTH), 3) for row in range(rows))
    return Load(sources, (length,) * rows, length, rows, 1)


def per_step(short: Sequence[float], long: Sequence[float]) -> float:
    """Seconds of a step between the two lengths, of the medians."""
    return (statistics.median(long) - statistics.median(short)) / (LONG - SHORT)


def measure_steps(
    runners: Sequence[Runner], cases: Sequence[tuple[int, int]], rounds: int, clock: str
) -> dict[str, dict[tuple[int, int], list[float]]]:
    """Seconds of every runner for each case of rows and length, in turn: {runner: {case: [seconds]}}."""
    found: dict[str, dict[tuple[int, int], list[float]]] = {runner.name: {} for runner in runners}
    for runner in runners:
        runner.open(max(rows for rows, _ in cases), max(length for _, length in cases))
        for rows in {rows for rows, _ in cases}:
            runner.seconds(load_of(rows, SHORT), clock)  # what is done once for a number of rows
    for _ in range(rounds):
        for case in cases:
            for runner in runners:
                found[runner.name].setdefault(case, []).append(runner.seconds(load_of(*case), clock))
    return found


def measure_memory(runner_of: RunnerOf, rows: Sequence[int], length: int) -> Iterator[tuple[int, dict[str, int]]]:
    """Bytes that each engine takes for so many rows, each in a new process."""
    for count in rows:
        taken = {}
        for name in ENGINES:
            with ExitStack() as processes:
                runner = runner_of(name, processes)
                runner.open(count, length)
                runner.seconds(load_of(count, length), "seconds")
                taken[name] = runner.process.memory()
        yield count, taken


def measure_start(runner_of: RunnerOf, rounds: int) -> dict[str, float]:
    """Seconds from opening the model to the first translation of one sentence, each time in a new process."""
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name in ENGINES:
            with ExitStack() as processes:
                runner = runner_of(name, processes)
                seconds = runner.open(64, 64)
                found.setdefault(name, []).append(seconds + runner.seconds(load_of(1, 1), "seconds"))
    return {name: statistics.median(seconds) for name, seconds in found.items()}


def measure(model: BenchmarkedModel, precision: str, arguments: argparse.Namespace) -> dict[str, Any]:
    threads = arguments.threads
    on_cuda = arguments.device == "cuda"
    clock = "cpu_seconds" if threads == 1 and not on_cuda else "seconds"

    def runner_of(name: str, processes: ExitStack) -> Runner:
        if name == "translane":
            process = DecoderProcess(TRANSLANE)
            options = {"replicas": 1, "threads": threads, "device": arguments.device}
            bundle = model.bundle
        else:
            process = DecoderProcess(CTRANSLATE2, LIBRARIES[arguments.library])
            options = {"workers": 1, "threads": threads, "compute_type": COMPUTE_TYPES[precision]}
            options["device"] = arguments.device
            bundle = model.converted
        return Runner(name, processes.enter_context(process), bundle, options)

    rows = arguments.rows
    with ExitStack() as processes:
        runners = [runner_of(name, processes) for name in ENGINES]
        by_rows = measure_steps(
            runners, [(count, length) for count in rows for length in (SHORT, LONG)], arguments.rounds, clock
        )
    return {
        "rows": {
            name: {count: per_step(found[count, SHORT], found[count, LONG]) for count in rows}
            for name, found in by_rows.items()
        },
        "memory": {} if on_cuda else dict(measure_memory(runner_of, rows, LONG)),  # which is not on the device
        "start": measure_start(runner_of, arguments.rounds),
    }


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS)
    parser.add_argument(
        "--threads", type=int, default=len(os.sched_getaffinity(0)), help="1: processor time is counted"
    )
    parser.add_argument("--library", choices=LIBRARIES, default="oneDNN", help="what CTranslate2 multiplies with")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parsed(parser, "growth")
    record: dict[str, Any] = {"machine": describe(), "device": arguments.device, "threads": arguments.threads}
    if arguments.device == "cpu":
        record["library"] = arguments.library
    usage = Usage()
    for name, precision, model in prepared(arguments):
        record[f"{name}-{precision}"] = measure(model, precision, arguments)
        record["usage"] = usage.so_far()
        write(arguments.output, record)
        print(f"{name}-{precision}: measured", flush=True)
    if "usage" in record:
        print("\n".join(tables.growth(record)))


if __name__ == "__main__":
    main()
