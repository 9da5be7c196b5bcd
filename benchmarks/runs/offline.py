"""Throughput of whole test sets: Translane against CTranslate2, on the same weights, sentences and processors.

    python -m benchmarks.runs.offline --quick                # a few minutes
    python -m benchmarks.runs.offline                        # every cell, up to an hour
    python -m benchmarks.runs.offline --models demo --precisions fp32 --searches greedy --batches 1 32

A cell is a model, a precision, a search and a batch size. In each cell, every engine first runs all its settings
(workers × threads, and CTranslate2 with each of its matrix libraries). The settings near an engine's best one go on to
the rounds, in which engines take turns; the best median counts. Engines get token ids, longest sentences first.

The base and the tiny model have random weights, which end no sentence: in both engines, the translations of a batch are
as long as the batch's median reference. The demo model ends its own sentences. At batch B, Translane has B rows in each
replica, or B × K at K beams, and fills the rows from one list. CTranslate2 sorts and batches by itself where lengths
are free; where lengths are fixed, CTranslate2 gets all batches at once. Both engines stop a beam search as soon as it
has as many ended translations as beams. Hugging Face's `generate` takes part at two batch sizes of the base model.
"""

from __future__ import annotations

import itertools
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import places
from benchmarks.engines.settings import Setting, settings_of
from benchmarks.machine import Usage, describe
from benchmarks.measuring.turns import Contest, Outcome
from benchmarks.models.benchmarked import COMPUTE_TYPES, RANDOM, BenchmarkedModel, random_folder
from benchmarks.models.workload import LONGEST, SEARCHES, Load, Pair, make_load, random_ids, read_pairs
from benchmarks.report.results import told, write
from benchmarks.runs.flags import parsed, parser_of, prepared
from translane_server.bundle.bundle import load_bundle

BATCHES = (1, 8, 32, 64, 128)
HUGGING_FACE_BATCHES = (8, 32)
HUGGING_FACE_PRECISIONS = {"cpu": "fp32", "cuda": "fp16"}  # by device
TRIAL_SENTENCES = 16  # at least, to choose settings by


@dataclass(frozen=True)
class Cell:
    model: str
    precision: str
    search: str
    batch: int

    def __str__(self) -> str:
        return f"{self.model} {self.precision} {self.search} batch {self.batch}"


@dataclass(frozen=True)
class Plan:
    """How long everything takes: seconds of a round's run, rounds, and batches of a run at least."""

    seconds: float
    rounds: int
    batches: int


FULL, QUICK = Plan(4.0, 5, 4), Plan(1.0, 3, 2)


def main() -> None:
    parser = parser_of(__doc__, searches=True)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds, and batches of 1, 32 and 128")
    parser.add_argument("--batches", nargs="+", type=int)
    arguments = parsed(parser, "offline")
    plan = QUICK if arguments.quick else FULL
    batches = arguments.batches or ((1, 32, 128) if arguments.quick else BATCHES)
    models = {(name, precision): model for name, precision, model in prepared(arguments)}
    cells = [
        Cell(*model, search, batch) for model, search, batch in itertools.product(models, arguments.searches, batches)
    ]
    pairs = {name: pairs_of(models[name, precision], name, arguments.sentences) for name, precision in models}
    record = {
        "machine": describe(),
        "plan": asdict(plan),
        "device": arguments.device,
        "sentences": arguments.sentences.name,
        "cells": [],
    }
    started, usage = time.monotonic(), Usage()
    engines = settings_of(len(os.sched_getaffinity(0)), arguments.device)
    if "base" not in arguments.models:
        del engines["hugging_face"]
    with Contest(engines) as contest:
        for cell in cells:
            model = models[cell.model, cell.precision]
            outcomes = measure(contest, cell, model, pairs[cell.model], plan, arguments.device)
            record["cells"].append(asdict(cell) | {name: asdict(outcome) for name, outcome in outcomes.items()})
            rates = ", ".join(f"{name} {found.rate:,.0f} ({found.setting})" for name, found in outcomes.items())
            ratio = told(outcomes["translane"].rate / outcomes["ctranslate2"].rate)
            print(f"{time.monotonic() - started:5.0f} s  {cell}: {rates} tokens/s, {ratio}", flush=True)
            record["usage"] = usage.so_far()
            write(arguments.output, record)
    print(f"\n{time.monotonic() - started:.0f} seconds; all rounds are in {arguments.output}")


def pairs_of(model: BenchmarkedModel, name: str, sentences: Path) -> list[Pair]:
    """The sentences as ids of the model; all models get the lengths that the demo model's pieces have."""
    pairs = read_pairs(sentences, load_bundle(places.DEMO))
    if name not in RANDOM:
        return pairs
    manifest = load_bundle(model.bundle).manifest
    return random_ids(pairs, range(4, manifest.architecture.source_vocab_size - 1), manifest.special_ids.eos)


def measure(
    contest: Contest, cell: Cell, model: BenchmarkedModel, pairs: list[Pair], plan: Plan, device: str = "cpu"
) -> dict[str, Outcome]:
    beam_size, fixed = SEARCHES[cell.search], cell.model in RANDOM
    longest = max(pair.reference_length for pair in pairs) if fixed else LONGEST

    def load(count: int) -> Load:
        return make_load(pairs, count, cell.batch, beam_size, fixed=fixed)

    def opening(setting: Setting) -> dict[str, Any] | None:
        if setting.engine == "hugging_face":
            takes_part = cell.model == "base" and cell.precision == HUGGING_FACE_PRECISIONS[device]
            if not takes_part or cell.batch not in HUGGING_FACE_BATCHES:
                return None
            return {"model": random_folder("base", model.converted.parent), "device": device}
        if setting.engine == "ctranslate2":
            return {"model": model.converted, "compute_type": COMPUTE_TYPES[cell.precision], "device": device}
        return {
            "model": model.bundle,
            "rows": cell.batch * beam_size,
            "source_tokens": max(len(pair.source) for pair in pairs),
            "target_tokens": longest,
            "ends": not fixed,
            "device": device,
        }

    least = plan.batches * cell.batch
    return contest.hold(
        opening,
        trial=load(max(least, TRIAL_SENTENCES)),
        load=lambda rate: load(-(-max(least, int(rate * plan.seconds)) // least) * least),
        rounds=plan.rounds,
    )


if __name__ == "__main__":
    main()
