"""Decoder steps of replicas side by side, without the engine: the fastest of many bursts, for a machine that is in use.

    python benchmarks/replica_steps.py models/zh-en
    python benchmarks/replica_steps.py runs/bench/models/base-fp32 --rows 1 8 64 --bursts 25

A burst is a few steps of every replica at the same time, after a pause; settings take turns. The fastest one is about
what a quiet machine does, and processor time is of the whole process. `replicas.py` measures the engine as a whole.
"""

from __future__ import annotations

import argparse
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from replicas import settings

from translane_server.bundle import load_bundle
from translane_server.ort import OrtBackend
from translane_server.sessions import Sessions

SOURCE_LENGTH, FIRST, STEPS = 15, 10, 2  # source tokens, position of a burst's first step, steps of a burst
CAPACITY = 32
PAUSE = 0.03  # seconds


def open_backend(sessions: Sessions, rows: int) -> OrtBackend:
    backend = OrtBackend(
        sessions, rows=rows, source_capacity=CAPACITY, target_capacity=CAPACITY, encode_tokens=rows * SOURCE_LENGTH
    )
    backend.warm_up()
    vocabulary = sessions.bundle.manifest.architecture.source_vocab_size
    backend.encode(np.random.default_rng(0).integers(4, vocabulary, (rows, SOURCE_LENGTH)).tolist(), 0)
    return backend


def burst(backend: OrtBackend) -> None:
    tokens = np.full(backend.rows, 5, np.int64)
    for position in range(FIRST, FIRST + STEPS):
        candidates = backend.decode_step(tokens, np.full(backend.rows, position, np.int32))
        tokens = candidates.token_ids[:, 0].copy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 2, 8, 16, 32, 64], help="of all replicas together")
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--settings", nargs="+", default=[f"1x{cores}", f"{cores}x1"], metavar="REPLICASxTHREADS")
    parser.add_argument("--bursts", type=int, default=60)
    arguments = parser.parse_args()
    bundle = load_bundle(arguments.bundle)
    compared = settings(arguments.settings)
    sessions = {threads: Sessions(bundle, threads=threads) for _, threads in compared}
    pool = ThreadPoolExecutor(max(replicas for replicas, _ in compared))
    print("| rows | replicas × threads | rows of each | step ms | processor ms |")
    print("|---:|---|---:|---:|---:|")
    for rows in arguments.rows:
        backends = [
            [open_backend(sessions[threads], max(1, rows // replicas)) for _ in range(replicas)]
            for replicas, threads in compared
        ]
        seconds: list[list[float]] = [[] for _ in compared]
        processor: list[list[float]] = [[] for _ in compared]
        for _ in range(arguments.bursts):
            for number, side_by_side in enumerate(backends):
                time.sleep(PAUSE)
                cpu, started = time.process_time(), time.perf_counter()
                list(pool.map(burst, side_by_side))
                seconds[number].append((time.perf_counter() - started) / STEPS)
                processor[number].append((time.process_time() - cpu) / STEPS)
        for label, side_by_side, walls, cpus in zip(arguments.settings, backends, seconds, processor, strict=True):
            print(
                f"| {rows} | {label.replace('x', ' × ')} | {side_by_side[0].rows} | {min(walls) * 1000:.2f} |"
                f" {np.percentile(cpus, 10) * 1000:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
