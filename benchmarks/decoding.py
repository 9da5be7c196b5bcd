"""What beam search costs around the decoder: the reorder of rows, and the engine.

    python benchmarks/decoding.py models/zh-en --sentences ../shared/data/tatoeba-zh-en/test.tsv.gz
    python benchmarks/decoding.py runs/base-random-bundle

Sentences with four beams each fill 64 rows; as one ends the next takes its rows. A step is counted without the encoder,
which runs when sentences join; every copy of a row counts as reorder, those included that fill a hole.

With `--sentences` (a file of source texts, of which a tab ends each) they are real ones, and end where the model ends
them. Without, sources are random ids, and each sentence goes on to a length from the same spread: a model of random
weights has no use for text. Its beams change parents more than a trained model's do.
"""

from __future__ import annotations

import argparse
import gzip
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

LENGTHS = (4, 40)  # of random sources and of their translations, tokens


def texts(path: Path, count: int) -> list[str]:
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
        return [line.rstrip("\n").split("\t")[0] for _, line in zip(range(count), lines, strict=False)]


def random_sentences(bundle: Bundle, count: int, beam_size: int) -> list[Sentence]:
    random = np.random.default_rng(0)
    vocabulary = bundle.manifest.architecture.source_vocab_size
    return [
        Sentence(
            random.integers(4, vocabulary, int(length)).tolist(),
            DecodingOptions(max_length=int(length), beam_size=beam_size),
        )
        for length in random.integers(LENGTHS[0], LENGTHS[1] + 1, count)
    ]


def real_sentences(engine: MeasuredEngine, path: Path, count: int, beam_size: int) -> list[Sentence]:
    options = DecodingOptions(max_length=64, beam_size=beam_size)
    return [Sentence(ids, options) for ids in engine.tokenizer.encode(texts(path, count)) if 0 < len(ids) <= 64]


def row(beam_size: int, rounds: list[Times]) -> str:
    def per_step(name: str) -> float:
        return statistics.median(getattr(times, name) / times.steps for times in rounds) * 1000

    first = rounds[0]
    step = statistics.median((times.total - times.encode) / times.steps for times in rounds) * 1000
    reorder = statistics.median(times.move / (times.total - times.encode) for times in rounds) * 100
    return (
        f"| {beam_size} | {first.steps} | {first.rows / first.steps:.1f} | {step:.2f} | {per_step('step'):.2f} |"
        f" {per_step('engine'):.2f} | {per_step('move'):.3f} | {reorder:.1f} | {per_step('encode'):.2f} |"
        f" {first.reordered_rows / first.steps:.1f} | {first.moved_rows / first.steps:.1f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--sentences", type=Path, help="a file with a source text on each line")
    parser.add_argument("--count", type=int, default=320)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    bundle = load_bundle(arguments.bundle)
    engine = MeasuredEngine(
        bundle, rows=arguments.rows, threads=arguments.threads, ends=arguments.sentences is not None
    )
    loads = {
        beam_size: real_sentences(engine, arguments.sentences, arguments.count, beam_size)
        if arguments.sentences
        else random_sentences(bundle, arguments.count, beam_size)
        for beam_size in arguments.beams
    }
    print(
        f"{bundle.manifest.name}: {bundle.manifest.architecture.parameters:,} parameters, {bundle.manifest.precision};"
        f" {arguments.rows} rows, {arguments.threads} threads, onnxruntime {onnxruntime.__version__},"
        f" {platform.processor() or platform.machine()}; {len(loads[arguments.beams[0]])} sentences,"
        f" medians of {arguments.rounds} rounds\n"
    )
    columns = ("steps", "mean rows", "step ms", "decoder ms", "engine ms", "reorder ms", "reorder %", "encoder ms")
    print("| beams |", " | ".join(columns), "| rows copied within a sentence | others |")
    print("|" + "---:|" * (len(columns) + 3))
    results: dict[int, list[Times]] = {beam_size: [] for beam_size in arguments.beams}
    for _ in range(arguments.rounds):
        for beam_size, rounds in results.items():
            rounds.append(engine.decode(loads[beam_size]))
    engine.close()
    for beam_size, rounds in results.items():
        print(row(beam_size, rounds))


if __name__ == "__main__":
    main()
