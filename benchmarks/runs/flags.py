"""The flags that benchmarks of models have in common, and the models that these name."""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import places
from benchmarks.models.benchmarked import (
    COMPUTE_TYPES,
    NAMES,
    ON_CUDA,
    PRECISIONS,
    BenchmarkedModel,
    Unavailable,
    prepare,
)
from benchmarks.models.workload import SEARCHES


def parser_of(
    description: str | None, *, searches: bool = False, devices: Sequence[str] = ("cpu", "cuda")
) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--precisions", nargs="+", choices=COMPUTE_TYPES, help="fp32 and int8, or fp16 on CUDA")
    parser.add_argument("--device", choices=devices, default="cpu")
    parser.add_argument("--folder", type=Path, default=places.MODELS, help="of converted models")
    parser.add_argument("-o", "--output", type=Path, help="a file of runs/bench by default")
    if searches:
        help_ = "source, tab, reference on each line"
        parser.add_argument("--searches", nargs="+", choices=SEARCHES, default=tuple(SEARCHES))
        parser.add_argument("--sentences", type=Path, default=places.SENTENCES, help=help_)
    return parser


def parsed(parser: argparse.ArgumentParser, name: str) -> argparse.Namespace:
    """The arguments of the benchmark `name`, with its output and its precisions."""
    arguments = parser.parse_args()
    arguments.output = arguments.output or places.result(name, arguments.device)
    arguments.precisions = arguments.precisions or (ON_CUDA if arguments.device == "cuda" else PRECISIONS)
    return arguments


def prepared(arguments: argparse.Namespace) -> Iterator[tuple[str, str, BenchmarkedModel]]:
    """The name, the precision and the folders of each model, as far as it can be had; others are told."""
    for name, precision in itertools.product(arguments.models, arguments.precisions):
        try:
            yield name, precision, prepare(name, precision, arguments.folder)
        except Unavailable as reason:
            print(f"skipped: {reason}", file=sys.stderr)
