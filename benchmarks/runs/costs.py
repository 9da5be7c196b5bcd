"""Where the time of a decoder step goes: in ONNX Runtime, or in the engine around it.

    python benchmarks/steps.py models/zh-en
    python benchmarks/steps.py runs/base-random-bundle --rows 1 8 32 64 --threads 2

Two loads. *steady*: as many sentences as rows, of one length, none of which ends early, so every step runs all rows.
*churn*: sentences of many lengths, more than there are rows, so that at almost every step some leave, rows are moved,
and others are encoded and join. The share outside ONNX Runtime is what the loop's thread spends on everything else,
from taking requests to answering them. What a server and its replicas tell each other is not in it.

On CUDA the thread queues its work and then waits for the GPU. There, the share outside is what the thread spends on
everything but waiting; the GPU may be at work meanwhile. Nobody asks for scores there, so several steps are taken at
once where nobody waits.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from machine import Usage, describe

from translane_server.bundle import Bundle, load_bundle
from translane_server.runtime.device_backend import device_backend
from translane_server.devices import Device, choose_device
from translane_server.engine import Engine
from translane_server.observer import NullObserver
from translane_server.options import DecodingOptions
from translane_server.request import Request, Sentence
from translane_server.runtime.sessions import Sessions
from translane_server.vocabulary import TargetVocabulary

ROOT = Path(__file__).resolve().parents[1]
SOURCE_LENGTH = 12  # tokens, about what a Tatoeba or chat sentence has
TARGET_LENGTH = 40
CHURN_LENGTHS = (4, 60)  # shortest and longest target
NEVER = -1  # an end-of-sentence id no model predicts


class Stopwatch:
    """Adds up the seconds of calls."""

    def __init__(self):
        self.seconds = 0.0

    def timed(self, call):
        def timed_call(*arguments):
            started = time.perf_counter()
            result = call(*arguments)
            self.seconds += time.perf_counter() - started
            return result

        return timed_call

    def watch(self, sessions: Sessions) -> None:
        """Time the runs of the graphs, or on CUDA the waits for the device."""
        if sessions.cuda:
            sessions.cuda.synchronize = self.timed(sessions.cuda.synchronize)
            return
        for name in ("encoder", "decoder", "greedy"):
            if session := getattr(sessions, name):
                setattr(sessions, name, TimedSession(session, self))


class TimedSession:
    """A session whose runs are timed."""

    def __init__(self, session, stopwatch: Stopwatch):
        self._session = session
        self.run_with_iobinding = stopwatch.timed(session.run_with_iobinding)

    def __getattr__(self, name):
        return getattr(self._session, name)


class StepCounter(NullObserver):
    """Counts decoder steps."""

    def __init__(self):
        self.steps = 0

    def stepped(self, seconds, rows):  # noqa: ARG002 - the observer's signature
        self.steps += 1


@dataclass(frozen=True)
class Measurement:
    steps: int
    rows: float  # mean over the steps
    step: float  # seconds
    runtime: float  # seconds of a step inside ONNX Runtime, or of waiting for the GPU; the encoder's included

    @property
    def outside(self) -> float:
        return 1 - self.runtime / self.step


def measure(bundle: Bundle, sentences: list[Sentence], rows: int, threads: int, device: Device) -> Measurement:
    """Decode `sentences` once; the time counts from the first step to the last."""
    sessions, stopwatch, counter = Sessions(bundle, device=device, threads=threads), Stopwatch(), StepCounter()
    stopwatch.watch(sessions)
    backend = device_backend(
        sessions,
        rows=rows,
        source_capacity=min(64, bundle.manifest.limits.source_tokens),
        target_capacity=min(64, bundle.manifest.limits.target_tokens),
    )
    backend.warm_up()
    engine = Engine(
        backend,
        vocabulary=TargetVocabulary(bundle.manifest.special_ids.decoder_start, NEVER),
        encode_tokens=2048,
        observer=counter,
    )
    generated = sum(sentence.options.max_length for sentence in sentences)
    unanswered = threading.Semaphore(0)
    for sentence in sentences:
        engine.submit(Request([sentence], lambda _result: unanswered.release()))
    stopwatch.seconds = 0.0  # without the warm-up
    started = time.perf_counter()
    engine.start()
    for _ in sentences:
        unanswered.acquire()
    wall, runtime = time.perf_counter() - started, stopwatch.seconds
    engine.stop()
    if engine.failed:
        raise engine.failed
    return Measurement(counter.steps, generated / counter.steps, wall / counter.steps, runtime / counter.steps)


def sentences(count: int, shortest: int, longest: int, vocabulary: int, *, scores: bool) -> list[Sentence]:
    random = np.random.default_rng(0)
    return [
        Sentence(
            random.integers(4, vocabulary, SOURCE_LENGTH).tolist(),
            DecodingOptions(int(random.integers(shortest, longest + 1)), scores=scores),
        )
        for _ in range(count)
    ]


def table(results: Mapping[tuple[str, int], Sequence[Measurement]]) -> list[dict[str, Any]]:
    """The medians of each load and number of rows: seconds of a step, and the share outside ONNX Runtime."""
    return [
        {
            "load": load,
            "rows": rows,
            "steps": rounds[0].steps,
            "mean_rows": rounds[0].rows,
            "step": statistics.median(measurement.step for measurement in rounds),
            "runtime": statistics.median(measurement.runtime for measurement in rounds),
            "outside": statistics.median(measurement.outside for measurement in rounds),
        }
        for (load, rows), rounds in results.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 32, 64])
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("-o", "--output", type=Path, help="runs/bench/steps-….json by default")
    arguments = parser.parse_args()
    bundle = load_bundle(arguments.bundle)
    device = choose_device(arguments.device, bundle.manifest.precision, bundle.manifest.schema_version)
    machine, manifest, usage = describe(), bundle.manifest, Usage()
    folder = ROOT / "runs" / "bench" / ("cuda" if device == "cuda" else "")
    output = arguments.output or folder / f"steps-{manifest.name}-{manifest.precision}.json"
    architecture = manifest.architecture
    vocabulary = architecture.source_vocab_size
    print(
        f"{manifest.name}: {architecture.parameters:,} parameters, {manifest.precision};"
        f" {arguments.threads} threads, onnxruntime {onnxruntime.__version__},"
        f" {platform.processor() or platform.machine()};"
        f" medians of {arguments.rounds} rounds\n"
    )
    within = "waiting for the GPU ms" if device == "cuda" else "in ONNX Runtime ms"
    print(f"| load | rows | steps | mean rows | step ms | {within} | outside ms | outside % |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    scores = device == "cpu"
    loads = {"steady": lambda rows: sentences(rows, TARGET_LENGTH, TARGET_LENGTH, vocabulary, scores=scores)}
    loads["churn"] = lambda rows: sentences(6 * rows, *CHURN_LENGTHS, vocabulary, scores=scores)
    # Rounds go over all cells in turn, so that a slow minute of the machine is spread over them.
    cells = [(load, rows) for load in loads for rows in arguments.rows]
    results: dict[tuple[str, int], list[Measurement]] = {cell: [] for cell in cells}
    for _ in range(arguments.rounds):
        for load, rows in cells:
            results[load, rows].append(measure(bundle, loads[load](rows), rows, arguments.threads, device))
        record = {
            "machine": machine,
            "model": manifest.name,
            "precision": manifest.precision,
            "device": device,
            "threads": arguments.threads,
            "usage": usage.so_far(),
            "steps": table(results),
        }
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(record, indent=1))
    for row in table(results):
        step, outside = 1000 * row["step"], row["outside"]
        print(
            f"| {row['load']} | {row['rows']} | {row['steps']} | {row['mean_rows']:.1f} | {step:.2f} |"
            f" {1000 * row['runtime']:.2f} | {step * outside:.3f} | {100 * outside:.1f} |"
        )


if __name__ == "__main__":
    main()
