"""Which is faster on the same processors: one replica of several threads, or several of one thread.

    python benchmarks/replicas.py models/zh-en
    python benchmarks/replicas.py runs/bench/models/base-fp32 --rows 1 32 --beams 1

*Throughput* is of many sentences given at once: replicas share the rows, though each has as many as a sentence takes.
*Latency* is of one sentence after the other, each alone in the engine. All settings are open at the same time and take
turns, one short run each; what counts is the median of each setting's ratio to the first within a round. Sources are
random, and every sentence goes on to a length of its own. Processor time is of the whole process.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
from pathlib import Path

import numpy as np
import onnxruntime
from measured import MeasuredEngine, Times

from translane_server.bundle import Bundle, load_bundle
from translane_server.options import DecodingOptions
from translane_server.request import Sentence

SOURCE_LENGTHS = (5, 25)  # tokens
TARGET_LENGTHS = (5, 35)
ALONE = 6  # sentences of a latency run


def sentences(bundle: Bundle, count: int, beam_size: int) -> list[Sentence]:
    random = np.random.default_rng(0)
    vocabulary = bundle.manifest.architecture.source_vocab_size
    lengths = zip(
        random.integers(*SOURCE_LENGTHS, count, endpoint=True),
        random.integers(*TARGET_LENGTHS, count, endpoint=True),
        strict=True,
    )
    return [
        Sentence(
            random.integers(4, vocabulary, int(source)).tolist(),
            DecodingOptions(max_length=int(target), beam_size=beam_size),
        )
        for source, target in lengths
    ]


def throughput(engine: MeasuredEngine, load: list[Sentence]) -> Times:
    return engine.decode(load)


def latency(engine: MeasuredEngine, load: list[Sentence]) -> Times:
    """Mean of decoding each sentence alone."""
    runs = [engine.decode([sentence]) for sentence in load]
    return Times(total=statistics.mean(run.total for run in runs), cpu=statistics.mean(run.cpu for run in runs))


def settings(texts: list[str]) -> list[tuple[int, int]]:
    return [(int(replicas), int(threads)) for replicas, _, threads in (text.partition("x") for text in texts)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 32, 64], help="of all replicas together")
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 4])
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--settings", nargs="+", default=[f"1x{cores}", f"{cores}x1"], metavar="REPLICASxTHREADS")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batches", type=int, default=3, help="of a throughput run")
    arguments = parser.parse_args()
    bundle = load_bundle(arguments.bundle)
    compared = settings(arguments.settings)
    first = arguments.settings[0]
    print(
        f"{bundle.manifest.name}: {bundle.manifest.architecture.parameters:,} parameters, {bundle.manifest.precision};"
        f" onnxruntime {onnxruntime.__version__}, {platform.processor() or platform.machine()};"
        f" medians of {arguments.rounds} rounds\n"
    )
    print(f"| load | beams | rows | replicas × threads | ms | processor ms | speed of {first} | processor of {first} |")
    print("|---|---:|---:|---|---:|---:|---:|---:|")
    for beams in arguments.beams:
        for rows in arguments.rows:
            engines = [
                MeasuredEngine(
                    bundle, rows=max(rows // replicas, beams), threads=threads, ends=False, replicas=replicas
                )
                for replicas, threads in compared
            ]
            loads = {"throughput": (throughput, sentences(bundle, max(arguments.batches * rows // beams, 4), beams))}
            if rows == arguments.rows[0]:
                loads["latency"] = (latency, sentences(bundle, ALONE, beams))
            for name, (measure, load) in loads.items():
                rounds = [[measure(engine, load) for engine in engines] for _ in range(1 + arguments.rounds)][1:]
                report(name, beams, rows, arguments.settings, rounds)
            for engine in engines:
                engine.close()


def report(name: str, beams: int, rows: int, labels: list[str], rounds: list[list[Times]]) -> None:
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
