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

import random
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import places
from benchmarks.machine import Usage, describe
from benchmarks.measuring.serving_cell import CellBenchmark, ServingCell, ServingPlan
from benchmarks.models.benchmarked import RANDOM
from benchmarks.models.workload import read_pairs, read_texts
from benchmarks.report import tables
from benchmarks.report.results import write
from benchmarks.runs.flags import parsed, parser_of, prepared
from translane_server.bundle.bundle import load_bundle

LETTERS = "abcdefghijklmnopqrstuvwxyz"

PLANS = {
    "quick": ServingPlan(2, 6, 3, 6, 0.7, 1, 4, 2, (), ()),
    "usual": ServingPlan(3, 9, 6, 8, 1.0, 1, 6, 2, (64,), (2,)),
    "full": ServingPlan(4, 12, 8, 12, 1.5, 2, 8, 4, (16, 64, 128), (2, 10)),
}


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
