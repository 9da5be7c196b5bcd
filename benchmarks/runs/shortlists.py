"""What a shortlist saves: processor time of a token with and without it, in turns, and the tokens that a step has.

    python -m benchmarks.runs.shortlists BUNDLE --rows 1 32

The bundle has a shortlist. One thread decodes sentences of random source ids, of which few are frequent and many are
rare, greedily and without scores. All tokens of a translation are counted, its end too.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from translane_server.bundle import Bundle, load_bundle
from translane_server.local import LocalDecoder
from translane_server.options import DecodingOptions
from translane_server.runtime.ort import OrtBackend
from translane_server.runtime.sessions import Sessions
from translane_server.sentence import Sentence
from translane_server.shortlist import load_shortlist
from translane_server.vocabulary import TargetVocabulary

_SOURCE, _TARGET = 15, 20  # tokens of a sentence, and most tokens of its translation


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path, help="bundle with a shortlist")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 32], help="sentences decoded together")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of which the median counts")
    arguments = parser.parse_args()
    bundle = load_bundle(arguments.bundle)
    if bundle.manifest.shortlist is None:
        parser.error(f"{arguments.bundle} has no shortlist")
    print("| rows | tokens of the lists | plain µs | shortlist µs | plain / shortlist |\n|---:|---:|---:|---:|---:|")
    for rows in arguments.rows:
        print(_measured(bundle, rows, arguments.rounds), flush=True)


def random_sources(bundle: Bundle, count: int) -> list[list[int]]:
    """Return sources whose ids are as rare as their rank says."""
    draw, size = random.Random(0), bundle.manifest.architecture.source_vocab_size
    ids, eos = range(4, size), bundle.manifest.special_ids.eos
    weights = [1 / rank for rank in range(1, len(ids) + 1)]
    return [[*draw.choices(ids, weights, k=_SOURCE - 1), eos] for _ in range(count)]


def _measured(bundle: Bundle, rows: int, rounds: int) -> str:
    sources, ids, shortlist = random_sources(bundle, 2 * rows), bundle.manifest.special_ids, load_shortlist(bundle)
    together = {token for source in sources[:rows] for token in shortlist.tokens(source).tolist()}
    backend = OrtBackend(Sessions(bundle, threads=1), rows=rows, source_capacity=_SOURCE, target_capacity=_TARGET)
    found: dict[bool, list[float]] = {False: [], True: []}
    with LocalDecoder(backend, TargetVocabulary(ids.decoder_start, ids.eos)) as decoder:
        for round_ in range(rounds + 1):  # the first one warms up
            for asked, times in found.items():
                times += [_microseconds(decoder, sources, asked=asked)][: round_ and 1]
    plain, limited = (statistics.median(times) for times in found.values())
    return f"| {rows} | {len(together):,} | {plain:,.0f} | {limited:,.0f} | {plain / limited:.2f} |"


def _microseconds(decoder: LocalDecoder, sources: Sequence[Sequence[int]], *, asked: bool) -> float:
    """Return the processor time of a token."""
    options = DecodingOptions(_TARGET, scores=False, shortlist=asked)
    started = time.process_time()
    results = decoder.decode([Sentence(source, options) for source in sources])
    seconds = time.process_time() - started
    return 1e6 * seconds / sum(len(result.hypotheses[0].token_ids) + 1 for result in results)


if __name__ == "__main__":
    main()
