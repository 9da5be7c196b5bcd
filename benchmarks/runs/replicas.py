"""Which is faster on the same processors: one replica of several threads, or several of one thread.

    python -m benchmarks.runs.replicas models/zh-en
    python -m benchmarks.runs.replicas runs/bench/models/base-fp32-bundle --rows 1 32 --beams 1

Replicas decode as in a server: each in a process of its own, behind a dispatcher. *Throughput* is measured with many
sentences given at once: replicas share the rows, but each has at least as many rows as a sentence takes. *Latency* is
measured with one sentence after the other, each alone. All settings are open at the same time and take turns, one short
run each. The median of a setting's ratios to the first setting, round by round, counts. Sources are random, and every
sentence goes on to a length of its own. `2x1/2` is two replicas of one thread, of which the first has two threads
while the other one has no work. Processor time is that of all processes, the dispatcher's included.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.engines.translane_decoder import TranslaneDecoder
from benchmarks.machine import family, processor, version_of
from benchmarks.models.workload import Load, random_sources
from translane_plan.measuring.processes import cpu_seconds
from translane_server.bundle import Bundle, load_bundle
from translane_server.sentence import Sentence

SOURCE_LENGTHS = (5, 25)  # tokens
TARGET_LENGTHS = (5, 35)
ALONE = 6  # sentences of a latency run


@dataclass(frozen=True)
class Run:
    """Seconds that decoding took, and that processors computed meanwhile."""

    total: float
    cpu: float


class OpenReplicas:
    """So many replicas of so many threads. Close it.

    Args:
        bundle: what to decode with.
        replicas: how many there are.
        threads: of each replica.
        lone_threads: of the first replica, while the others have no work.
        rows: of each replica.
    """

    def __init__(self, bundle: Bundle, replicas: int, threads: int, lone_threads: int, rows: int) -> None:
        own = os.getpid()
        others = set(family(own))
        self._decoder = TranslaneDecoder(
            bundle.folder,
            replicas=replicas,
            threads=threads,
            lone_threads=lone_threads,
            rows=rows,
            source_tokens=SOURCE_LENGTHS[1],
            target_tokens=TARGET_LENGTHS[1],
            ends=False,
        )
        self._processes = [own, *set(family(own)) - others]

    def throughput(self, load: Load) -> Run:
        return self._run(self._decoder.prepare(load))

    def latency(self, load: Load) -> Run:
        """Mean of decoding each sentence alone."""
        runs = [self._run([sentence]) for sentence in self._decoder.prepare(load)]
        return Run(statistics.mean(run.total for run in runs), statistics.mean(run.cpu for run in runs))

    def close(self) -> None:
        self._decoder.close()

    def _run(self, sentences: list[Sentence]) -> Run:
        cpu, started = cpu_seconds(self._processes), time.perf_counter()
        self._decoder.decode(sentences)
        return Run(time.perf_counter() - started, cpu_seconds(self._processes) - cpu)


def load_of(bundle: Bundle, count: int, beam_size: int) -> Load:
    """Random sources, and translations of lengths of their own."""
    pick = random.Random(0)
    sources = random_sources(bundle, [pick.randint(*SOURCE_LENGTHS) for _ in range(count)])
    return Load(
        tuple(sources),
        tuple(pick.randint(*TARGET_LENGTHS) for _ in range(count)),
        TARGET_LENGTHS[1],
        count,
        beam_size,
    )


def parse(text: str) -> tuple[int, int, int]:
    """Read the numbers of replicas, of their threads, and of a lone replica's threads."""
    replicas, _, threads = text.partition("x")
    threads, _, lone_threads = threads.partition("/")
    return int(replicas), int(threads), int(lone_threads or threads)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 32, 64], help="of all replicas together")
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 4])
    cores = len(os.sched_getaffinity(0))
    parser.add_argument(
        "--settings", nargs="+", default=[f"1x{cores}", f"{cores}x1"], metavar="REPLICASxTHREADS[/LONE]"
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batches", type=int, default=3, help="of a throughput run")
    arguments = parser.parse_args()
    bundle = load_bundle(arguments.bundle)
    first = arguments.settings[0]
    print(
        f"{bundle.manifest.name}: {bundle.manifest.architecture.parameters:,} parameters, {bundle.manifest.precision};"
        f" onnxruntime {version_of('onnxruntime')}, {processor()};"
        f" medians of {arguments.rounds} rounds\n"
    )
    print(f"| load | beams | rows | replicas × threads | ms | processor ms | speed of {first} | processor of {first} |")
    print("|---|---:|---:|---|---:|---:|---:|---:|")
    for beams in arguments.beams:
        for rows in arguments.rows:
            settings = [
                OpenReplicas(bundle, replicas, threads, lone_threads, max(rows // replicas, beams))
                for replicas, threads, lone_threads in map(parse, arguments.settings)
            ]
            measures: dict[str, tuple[Callable[[OpenReplicas, Load], Run], int]] = {
                "throughput": (OpenReplicas.throughput, max(arguments.batches * rows // beams, 4))
            }
            if rows == arguments.rows[0]:
                measures["latency"] = (OpenReplicas.latency, ALONE)
            for name, (measure, count) in measures.items():
                load = load_of(bundle, count, beams)
                rounds = [[measure(setting, load) for setting in settings] for _ in range(1 + arguments.rounds)][1:]
                report(name, beams, rows, arguments.settings, rounds)
            for setting in settings:
                setting.close()


def report(name: str, beams: int, rows: int, labels: list[str], rounds: list[list[Run]]) -> None:
    for number, label in enumerate(labels):
        total = statistics.median(run[number].total for run in rounds) * 1000
        cpu = statistics.median(run[number].cpu for run in rounds) * 1000
        speed = statistics.median(run[0].total / run[number].total for run in rounds)
        of_cpu = statistics.median(run[number].cpu / run[0].cpu for run in rounds)
        print(
            f"| {name} | {beams} | {rows} | {label.replace('x', ' × ')} | {total:.1f} | {cpu:.1f} | {speed:.2f} |"
            f" {of_cpu:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
