"""What each variant of attention and norms costs beside plain attention: decoder steps, encoding, and memory of rows.

    python -m benchmarks.runs.attention                         # all variants; writes a table into docs/attention.md
    python -m benchmarks.runs.attention --only rotary --rounds 3 --no-page

A variant's model and the plain one take turns on one thread, and processor time counts, so that other programs change
little. A ratio is the median over all rounds of the variant's time over the plain model's time in the same round. Where
weights and caches happen to lie in memory decides over a quarter of a small step's time, so both models are opened
several times. The plain model takes part as a variant, too: its ratios show how far others are from 1 by chance.

A step is measured at two lengths of the translation, with room for 256 tokens, and sources of 32 tokens. Encoding takes
8 such sources at once. Memory is that of the keys and values of one row in one layer of the decoder, self-attention's
at 256 tokens and cross-attention's at 64. The first run exports all models and keeps them in `runs/bench/models`.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import places
from benchmarks.machine import Usage, describe
from benchmarks.measuring.contest import turns
from benchmarks.models.attention_variants import (
    PLAIN,
    SOURCE_CAPACITY,
    TARGET_CAPACITY,
    VARIANTS,
    bundle_of,
    row_bytes,
)
from benchmarks.models.workload import random_sources
from benchmarks.report.attention_tables import of_variants
from benchmarks.report.marked_part import write_part
from benchmarks.report.results import write
from translane_server.backend import BEST_TOKEN_ALONE
from translane_server.bundle import Bundle
from translane_server.runtime.ort import OrtBackend
from translane_server.runtime.sessions import Sessions

COMMAND = "python -m benchmarks.runs.attention"
ROWS, LENGTHS = (1, 32), (20, 200)
SOURCE_LENGTH, SOURCES = 32, 8  # tokens; sources that are encoded at once
AGAIN = "plain, once more"
TOKEN, TOKENS_OF_PAGE = 9, 16  # that is fed; tokens of a head on 4 KiB
SHORTEST = 0.02  # seconds of a measurement's repeated runs


@dataclass(frozen=True)
class Case:
    """Something that all models do.

    Attributes:
        name: of its column in the table.
        run: does it once.
    """

    name: str
    run: Callable[[OrtBackend], object]


def cases_of(bundle: Bundle) -> list[Case]:
    """Steps of each number of rows at each length, and encoding."""
    sources = random_sources(bundle, [SOURCE_LENGTH] * SOURCES)

    def step(rows: int, length: int) -> Case:
        tokens, positions = np.full(rows, TOKEN, np.int64), np.full(rows, length - 1, np.int32)
        name = f"step: {rows} row{'s' * (rows > 1)}, {length} tokens"
        return Case(name, lambda backend: backend.decode_step(tokens, positions, BEST_TOKEN_ALONE))

    encoding = Case(f"encoding {SOURCES} × {SOURCE_LENGTH}", lambda backend: backend.encode_ahead(sources))
    return [*(step(rows, length) for rows in ROWS for length in LENGTHS), encoding]


def open_backend(bundle: Bundle) -> OrtBackend:
    """A backend whose rows all hold a source, and some tokens on every page of memory up to the longest case."""
    rows = max(ROWS)
    backend = OrtBackend(
        Sessions(bundle, threads=1), rows=rows, source_capacity=SOURCE_CAPACITY, target_capacity=TARGET_CAPACITY
    )
    backend.warm_up()
    backend.encode(random_sources(bundle, [SOURCE_LENGTH] * rows), 0)
    tokens = np.full(rows, TOKEN, np.int64)
    for position in range(0, max(LENGTHS), TOKENS_OF_PAGE):
        backend.decode_step(tokens, np.full(rows, position, np.int32), BEST_TOKEN_ALONE)
    return backend


def seconds_of(case: Case, backend: OrtBackend, repeats: int) -> float:
    """Processor seconds of one run, of `repeats` in a row."""
    start = time.thread_time()
    for _ in range(repeats):
        case.run(backend)
    return (time.thread_time() - start) / repeats


def compare(
    plain: Bundle, variant: Bundle, cases: Sequence[Case], openings: int, rounds: int
) -> dict[str, list[tuple[float, float]]]:
    """Seconds of the plain model and of the variant, for each case and round: {case: [(plain, variant)]}."""
    found: dict[str, list[tuple[float, float]]] = {case.name: [] for case in cases}
    for order in turns([0, 1], openings):
        backends = {place: open_backend((plain, variant)[place]) for place in order}
        repeats = {case.name: 1 + int(SHORTEST / seconds_of(case, backends[0], 2)) for case in cases}
        for turn in turns(order, rounds):
            for case in cases:
                seconds = {place: seconds_of(case, backends[place], repeats[case.name]) for place in turn}
                found[case.name].append((seconds[0], seconds[1]))
        for backend in backends.values():
            backend.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="variants whose names contain this")
    parser.add_argument("--openings", type=int, default=5, help="how often a variant is opened")
    parser.add_argument("--rounds", type=int, default=5, help="of each opening")
    parser.add_argument("--folder", type=Path, default=places.MODELS, help="of exported models")
    parser.add_argument("-o", "--output", type=Path, default=places.result("attention"))
    parser.add_argument("--page", type=Path, default=places.ROOT / "docs" / "attention.md")
    parser.add_argument("--no-page", action="store_true", help="leave the page alone")
    arguments = parser.parse_args()
    names = {AGAIN: PLAIN} | {name: name for name in VARIANTS if name != PLAIN and arguments.only in name}
    bundles = {name: bundle_of(variant, arguments.folder) for name, variant in names.items()}
    plain = bundles[AGAIN]
    cases, usage = cases_of(plain), Usage()
    record: dict[str, Any] = {"machine": describe(), "openings": arguments.openings, "rounds": arguments.rounds}
    record |= {"plain": {}, "row_bytes": row_bytes(plain), "variants": {}}
    for name, bundle in bundles.items():
        found = compare(plain, bundle, cases, arguments.openings, arguments.rounds)
        if name == AGAIN:
            record["plain"] = {case: statistics.median(itertools.chain(*pairs)) for case, pairs in found.items()}
        ratios = {case: statistics.median(other / one for one, other in pairs) for case, pairs in found.items()}
        record["variants"][name] = {"ratios": ratios, "row_bytes": row_bytes(bundle), "rounds": found}
        record["usage"] = usage.so_far()
        write(arguments.output, record)
        print(name, {case: round(ratio, 2) for case, ratio in ratios.items()}, flush=True)
    lines = "\n".join(of_variants(record))
    print(f"\n{lines}")
    if not arguments.no_page:
        write_part(arguments.page, "variants", COMMAND, lines)


if __name__ == "__main__":
    main()
