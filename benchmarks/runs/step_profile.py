"""Where a decoder step's time goes, by what its nodes are for, at several numbers of rows.

    python -m benchmarks.runs.step_profile                  # all models; writes the tables into docs/decoding-costs.md
    python -m benchmarks.runs.step_profile --models demo-int8 --rows 1 64 --no-page
    python -m benchmarks.runs.step_profile --bundle FOLDER --no-page

*demo* is the bundled model, *base* has Marian's base size and 32,000 pieces, *tiny* has 2 + 2 layers of d_model 128 and
2,841 pieces; the last two have random weights. The first run exports what is missing, and keeps it in
`runs/bench/models`. Steps run on one thread and choose the best token alone. The times of a step and of its matrix
products alone are processor times, taken in turns. ONNX Runtime's profiler times the other nodes. What is left of a
step's time is between the nodes, or is what products take longer where other nodes have used the caches.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import places
from benchmarks.machine import Usage, describe
from benchmarks.measuring.step_profile import step_times
from benchmarks.models.random_bundles import profiled_bundle
from benchmarks.models.workload import random_sources
from benchmarks.report.marked_part import write_part
from benchmarks.report.profile_tables import of_models
from benchmarks.report.results import write
from benchmarks.runs.products import MatrixProducts
from translane_server.backend import BEST_TOKEN_ALONE
from translane_server.bundle import Bundle, load_bundle
from translane_server.runtime.ort import OrtBackend
from translane_server.runtime.sessions import Sessions

COMMAND = "python -m benchmarks.runs.step_profile"
MODELS = ("demo-fp32", "demo-int8", "base-fp32", "base-int8", "tiny-fp32", "tiny-int8")
SOURCE_LENGTH, POSITION = 12, 12  # tokens of every row's source; tokens that every row has already
TOKEN = 9  # that is fed
RUNS = 20  # of a profile, after as many that do not count
SHORTEST, FEWEST = 0.004, 2  # seconds and runs of a round: short ones, of which some are undisturbed


def open_backend(bundle: Bundle, rows: int, profile: str | None = None) -> tuple[OrtBackend, Sessions]:
    """A backend with `rows` rows, each at the same position of a translation of a random source."""
    sessions = Sessions(bundle, threads=1, profile=profile)
    backend = OrtBackend(sessions, rows=rows, source_capacity=2 * SOURCE_LENGTH, target_capacity=2 * POSITION)
    backend.encode(random_sources(bundle, [SOURCE_LENGTH] * rows), 0)
    for position in range(POSITION):
        backend.decode_step(*fed(rows, position), BEST_TOKEN_ALONE)
    return backend, sessions


def fed(rows: int, position: int) -> tuple[Any, Any]:
    """Tokens and positions of a step."""
    return np.full(rows, TOKEN, np.int64), np.full(rows, position, np.int32)


def seconds_of(runs: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """Processor seconds of each of `runs`, which take turns: the least of the rounds' means."""
    means: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds):
        for run, found in zip(runs, means, strict=True):
            run()
            started, count = time.thread_time(), 0
            while time.thread_time() - started < SHORTEST or count < FEWEST:
                run()
                count += 1
            found.append((time.thread_time() - started) / count)
    return [min(found) for found in means]


def profile(bundle: Bundle, rows: int, rounds: int) -> dict[str, Any]:
    """A step's time, and that of its nodes by role [µs]."""
    backend, _ = open_backend(bundle, rows)
    products = MatrixProducts(bundle, 1).bind(rows)
    tokens, positions = fed(rows, POSITION)
    step, alone = seconds_of((lambda: backend.decode_step(tokens, positions, BEST_TOKEN_ALONE), products), rounds)
    backend.close()
    with tempfile.TemporaryDirectory() as folder:
        backend, sessions = open_backend(bundle, rows, str(Path(folder) / "profile"))
        for _ in range(2 * RUNS):
            backend.decode_step(*fed(rows, POSITION), BEST_TOKEN_ALONE)
        graph = sessions.greedy or sessions.decoder
        events = json.loads(Path(graph.end_profiling()).read_bytes())
        backend.close()
        sessions.close()
    times = step_times(events, RUNS)
    roles = {**times.roles, "products": alone * 1e6}
    return {"step": step * 1e6, "nodes": times.nodes, "roles": roles}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--bundle", type=Path, help="another model, in place of these")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 32, 64, 128])
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--folder", type=Path, default=places.MODELS, help="of exported models")
    parser.add_argument("-o", "--output", type=Path, default=places.result("step-profile"))
    parser.add_argument("--page", type=Path, default=places.ROOT / "docs" / "decoding-costs.md")
    parser.add_argument("--no-page", action="store_true", help="leave the page alone")
    arguments = parser.parse_args()
    if min(arguments.rows) < 1 or max(arguments.rows) > 1024 or not 1 <= arguments.rounds <= 100:
        parser.error("--rows are 1 to 1024, and --rounds 1 to 100")
    if arguments.bundle:
        bundles = {arguments.bundle.name: load_bundle(arguments.bundle)}
    else:
        bundles = {name: load_bundle(profiled_bundle(name, arguments.folder)) for name in arguments.models}
    usage = Usage()
    record: dict[str, Any] = {"machine": describe(), "models": {}}
    for name, bundle in bundles.items():
        record["models"][name] = {rows: profile(bundle, rows, arguments.rounds) for rows in arguments.rows}
        record["usage"] = usage.so_far()
        write(arguments.output, record)
        found = {rows: each["step"] / each["roles"]["products"] for rows, each in record["models"][name].items()}
        print(name, {rows: round(ratio, 2) for rows, ratio in found.items()}, flush=True)
    lines = of_models(record)
    print(f"\n{lines}")
    if not arguments.no_page:
        write_part(arguments.page, "step profile", COMMAND, lines)


if __name__ == "__main__":
    main()
