"""What each way to decode costs, beside plain greedy search.

    python benchmarks/search_costs.py models/zh-en
    python benchmarks/search_costs.py runs/base-random-bundle --rounds 5

Every option decodes a batch that fills all rows (a sentence takes a row for each of its beams or hypotheses) for the
same number of steps: no sentence ends before. The encoder's time is left out. Rounds go over all options in turn, in
another order each time, so that a slow minute of the machine is spread over them.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import statistics
from pathlib import Path

import onnxruntime
from measured import MeasuredEngine

from translane_server.bundle import load_bundle
from translane_server.options import DecodingOptions, RequiredPhrase, Sampling
from translane_server.request import Sentence

SOURCE_LENGTH = 12  # tokens, about what a Tatoeba or chat sentence has
TARGET_LENGTH = 40
BEAMS = {"beam_size": 4}

OPTIONS = {
    "greedy": {},
    "alignment": {"alignment": True},
    "repetition penalty 1.2": {"repetition_penalty": 1.2},
    "no repeated 3-gram": {"no_repeat_ngram_size": 3},
    "suppressed phrases (3)": {"suppressed_phrases": 3},
    "prefix of 10 tokens": {"prefix": 10},
    "4 alternatives": {"alternatives": True, "num_hypotheses": 4},
    "sampling": {"sampling": Sampling(seed=1)},
    "sampling, top_k 10": {"sampling": Sampling(seed=1, top_k=10)},
    "sampling, top_p 0.9": {"sampling": Sampling(seed=1, top_p=0.9)},
    "sampling, top_k 10, 4 hypotheses": {"sampling": Sampling(seed=1, top_k=10), "num_hypotheses": 4},
    "score": {"score": True},
    "beam 4": BEAMS,
    "beam 4, 4 hypotheses": {**BEAMS, "num_hypotheses": 4},
    "beam 4, alignment": {**BEAMS, "alignment": True},
    "beam 4, coverage penalty": {**BEAMS, "coverage_penalty": 0.2},
    "beam 4, repetition penalty 1.2": {**BEAMS, "repetition_penalty": 1.2},
    "beam 4, no repeated 3-gram": {**BEAMS, "no_repeat_ngram_size": 3},
    "beam 4, suppressed phrases (3)": {**BEAMS, "suppressed_phrases": 3},
    "beam 4, terminology (1 phrase)": {**BEAMS, "required": 1},
    "beam 4, terminology (3 phrases)": {**BEAMS, "required": 3},
}


def sentences(engine: MeasuredEngine, rows: int, source_size: int, values: dict) -> list[Sentence]:
    """As many sentences as the rows hold."""
    pick = random.Random(0)
    surfaces = engine.vocabulary.surfaces
    ids = [token for token in range(len(surfaces)) if surfaces[token].strip()]
    values = dict(values)
    phrases = [tuple(pick.choices(ids, k=2)) for _ in range(3)]
    text = {phrase: b"".join(surfaces[token] for token in phrase).strip() for phrase in phrases}
    required = tuple(RequiredPhrase(text[phrase], phrase) for phrase in phrases[: values.pop("required", 0)])
    suppressed = tuple(text[phrase] for phrase in phrases[: values.pop("suppressed_phrases", 0)])
    prefix = values.pop("prefix", 0)
    length = TARGET_LENGTH - prefix
    if values.pop("score", False):
        prefix, length = TARGET_LENGTH, 0
    options = DecodingOptions(max_length=length, suppressed_phrases=suppressed, **values)
    return [
        Sentence(
            [pick.randrange(4, source_size) for _ in range(SOURCE_LENGTH)],
            options,
            forced_ids=tuple(pick.choices(ids, k=prefix)),
            required_phrases=required,
        )
        for _ in range(rows // options.rows)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", help="options whose names hold this text, and greedy")
    arguments = parser.parse_args()
    bundle = load_bundle(arguments.bundle)
    engine = MeasuredEngine(bundle, rows=arguments.rows, threads=arguments.threads, ends=False)
    source_size = bundle.manifest.architecture.source_vocab_size
    loads = {
        name: sentences(engine, arguments.rows, source_size, values)
        for name, values in OPTIONS.items()
        if name == "greedy" or not arguments.only or arguments.only in name
    }
    if not engine.has_attention:
        loads = {name: load for name, load in loads.items() if not load[0].options.attention}
    print(
        f"{bundle.manifest.name}: {bundle.manifest.architecture.parameters:,} parameters, {bundle.manifest.precision};"
        f" {arguments.rows} rows, {TARGET_LENGTH} tokens, {arguments.threads} threads, onnxruntime"
        f" {onnxruntime.__version__}, {platform.processor() or platform.machine()};"
        f" medians of {arguments.rounds} rounds\n"
    )
    per_step: dict[str, list[float]] = {name: [] for name in loads}
    decoder: dict[str, list[float]] = {name: [] for name in loads}
    ratios: dict[str, list[float]] = {name: [] for name in loads}
    shuffle = random.Random(0)
    engine.decode(loads["greedy"])  # what is bound and allocated once
    for _ in range(arguments.rounds):
        for name in shuffle.sample(list(loads), len(loads)):
            times = engine.decode(loads[name])
            per_step[name].append((times.total - times.encode) / times.steps * 1000)
            decoder[name].append(times.step / times.steps * 1000)
        for name in loads:
            ratios[name].append(per_step[name][-1] / per_step["greedy"][-1])
    engine.close()
    print("| option | sentences × rows | step ms | decoder ms | around it ms | × greedy | ms a sentence |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name, load in loads.items():
        step, inside = statistics.median(per_step[name]), statistics.median(decoder[name])
        print(
            f"| {name} | {len(load)} × {load[0].options.rows} | {step:.2f} | {inside:.2f} | {step - inside:.2f} |"
            f" {statistics.median(ratios[name]):.2f} | {step * TARGET_LENGTH / len(load):.1f} |"
        )


if __name__ == "__main__":
    main()
