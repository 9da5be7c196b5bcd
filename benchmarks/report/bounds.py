"""The bounds that the project holds its speed to, and whether measurements keep them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.report.ratios import over
from benchmarks.report.results import Record, Results
from benchmarks.report.tables import ENGINES, median_of


@dataclass(frozen=True)
class Bound:
    """What a quantity has to keep: at least `limit`, or at most where `most` is set, and what is aimed at beyond it."""

    name: str
    limit: float
    aim: float | None = None
    most: bool = False
    percent: bool = False

    def is_kept(self, value: float) -> bool:
        return value <= self.limit if self.most else value >= self.limit

    def told(self, value: float) -> str:
        return f"{value:.1%}" if self.percent else f"{value:.2f}"

    def __str__(self) -> str:
        return f"{self.name} {'≤' if self.most else '≥'} {f'{self.limit:.0%}' if self.percent else f'{self.limit:.1f}'}"


OFFLINE = {
    "fp32": Bound("offline, fp32: tokens/s over CTranslate2's", 1.0, 1.3),
    "int8": Bound("offline, int8: tokens/s over CTranslate2's", 1.2, 2.0),
}
SERVING = Bound("serving: highest rate over CTranslate2's", 2.0, 3.0)
LOW_LOAD = Bound("serving: median latency at low load over CTranslate2's", 1.0, most=True)
MEMORY = Bound("memory: growth while requests are served", 0.05, most=True, percent=True)

# A bound, and the value of each cell by its name.
Verdict = tuple[Bound, dict[str, float]]


def verdicts(results: Results) -> list[Verdict]:
    """What was measured of each bound of which something was measured."""
    offline, serving = _cells(results["offline"]), _cells(results["serving"])
    hidden = [(f"{name} without VNNI", cell) for name, cell in _cells(results["without_vnni"])]
    found = [
        (bound, {name: over(*_rates(cell)) for name, cell in offline + hidden if cell["precision"] == precision})
        for precision, bound in OFFLINE.items()
    ]
    found.append((SERVING, {name: over(*(cell["highest_rate"][each] for each in ENGINES)) for name, cell in serving}))
    found.append((LOW_LOAD, {name: _low_load(cell) for name, cell in serving if cell["grid"]}))
    found.append((MEMORY, {f"{record['requests']:,} requests": record["growth"] for record in results["soak"]}))
    return [(bound, values) for bound, values in found if values]


def table(found: Sequence[Verdict]) -> Iterator[str]:
    """A row for each bound: how many cells keep it, and the worst one."""
    yield from ("| bound | aim | kept | worst | where |", "|---|---:|---:|---:|---|")
    for bound, values in found:
        kept = sum(map(bound.is_kept, values.values()))
        name, value = (max if bound.most else min)(values.items(), key=lambda item: item[1])
        aim = f"{bound.aim:.1f}" if bound.aim else ""
        yield f"| {bound} | {aim} | {kept} of {len(values)} | {bound.told(value)} | {name} |"


def _cells(records: Iterable[Record]) -> list[tuple[str, Record]]:
    return [
        (" ".join([cell["model"], cell["precision"], cell["search"], *_batch(cell)]), cell)
        for record in records
        for cell in record["cells"]
    ]


def _batch(cell: Record) -> list[str]:
    return [f"batch {cell['batch']}"] if "batch" in cell else []


def _rates(cell: Record) -> Iterator[float]:
    yield from (cell[name]["rate"] for name in ENGINES)


def _low_load(cell: Record) -> float:
    ours, theirs = (median_of(cell["grid"][0][name], "p50") for name in ENGINES)
    return ours / theirs if math.isfinite(ours) else math.inf
