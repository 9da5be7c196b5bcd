"""The bounds that the project holds its speed to, and whether measurements keep them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.machine import has_vnni
from benchmarks.report.results import Record, Results
from benchmarks.report.serving_tables import median_of

OUTSIDE_LOADS = ("steady", "churn")  # without streams
OUTSIDE_ROWS = 32  # of the steps whose share outside ONNX Runtime is bounded


@dataclass(frozen=True)
class Bound:
    """What a quantity has to keep.

    Attributes:
        name: of the quantity.
        limit: the value that the quantity has to reach, or to stay within where `most` is set.
        aim: the value that is aimed at, if more than the limit.
        most: whether the limit is an upper one.
        percent: whether the quantity is a share.
    """

    name: str
    limit: float
    aim: float | None = None
    most: bool = False
    percent: bool = False

    def is_kept(self, value: float) -> bool:
        return value <= self.limit if self.most else value >= self.limit

    def missed_by(self, value: float) -> float:
        """How far a value is from the limit, as a share of the limit."""
        return abs(value - self.limit) / self.limit

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
OUTSIDE = Bound(f"outside ONNX Runtime, of a step of {OUTSIDE_ROWS} rows", 0.10, most=True, percent=True)
MEMORY = Bound("memory: growth while sentences are served", 0.05, most=True, percent=True)


@dataclass(frozen=True)
class Verdict:
    """A bound, and what was measured: the value of each cell by its name."""

    bound: Bound
    values: dict[str, float]

    @property
    def missed(self) -> dict[str, float]:
        return {name: value for name, value in self.values.items() if not self.bound.is_kept(value)}

    @property
    def worst(self) -> tuple[str, float]:
        return (max if self.bound.most else min)(self.values.items(), key=lambda item: item[1])


def verdicts(results: Results) -> list[Verdict]:
    """The verdict on each bound of which something was measured."""
    offline = [*results["offline"], *results["without_vnni"]]
    found = [Verdict(bound, dict(_offline(offline, precision))) for precision, bound in OFFLINE.items()]
    found.append(Verdict(SERVING, dict(_rates(results["serving"]))))
    found.append(Verdict(LOW_LOAD, dict(_low_loads(results["serving"]))))
    found.append(Verdict(OUTSIDE, dict(_outside(results["steps"]))))
    found.append(Verdict(MEMORY, dict(_growths(results["soak"]))))
    return [verdict for verdict in found if verdict.values]


def _offline(records: Sequence[Record], precision: str) -> Iterable[tuple[str, float]]:
    kinds = {has_vnni(record["machine"]["processor"]) for record in records}
    for record in records:
        vnni = has_vnni(record["machine"]["processor"])
        told = " without VNNI" if len(kinds) > 1 and not vnni else ""
        for cell in record["cells"]:
            if cell["precision"] == precision:
                name = f"{cell['model']} {cell['precision']} {cell['search']} batch {cell['batch']}{told}"
                yield name, cell["translane"]["rate"] / cell["ctranslate2"]["rate"]


def _rates(records: Sequence[Record]) -> Iterable[tuple[str, float]]:
    for cell in (cell for record in records for cell in record["cells"]):
        ours, theirs = (cell["highest_rate"][name] for name in ("translane", "ctranslate2"))
        yield _name(cell), ours / theirs if theirs else math.inf if ours else 0.0


def _low_loads(records: Sequence[Record]) -> Iterable[tuple[str, float]]:
    for cell in (cell for record in records for cell in record["cells"] if cell["grid"]):
        ours, theirs = (median_of(cell["grid"][0][name], "p50") for name in ("translane", "ctranslate2"))
        yield _name(cell), ours / theirs if math.isfinite(ours) else math.inf


def _outside(records: Sequence[Record]) -> Iterable[tuple[str, float]]:
    for record in records:
        if record.get("device") == "cuda":  # there, the share is all but waits for the GPU
            continue
        for row in record["steps"]:
            if row["rows"] == OUTSIDE_ROWS and row["load"] in OUTSIDE_LOADS:
                yield f"{record['model']} {record['precision']} {row['load']}", row["outside"]


def _growths(records: Sequence[Record]) -> Iterable[tuple[str, float]]:
    for record in records:
        yield f"{record['sentences']:,} sentences", record["growth"]


def _name(cell: Record) -> str:
    return f"{cell['model']} {cell['precision']} {cell['search']}"


def table(found: Sequence[Verdict]) -> list[str]:
    """The lines of a table of verdicts, and of what is missed and by how much."""
    lines = ["| bound | aim | kept | worst | where |", "|---|---:|---:|---:|---|"]
    for verdict in found:
        kept = len(verdict.values) - len(verdict.missed)
        name, value = verdict.worst
        aim = f"{verdict.bound.aim:.1f}" if verdict.bound.aim else ""
        told = verdict.bound.told(value)
        lines.append(f"| {verdict.bound} | {aim} | {kept} of {len(verdict.values)} | {told} | {name} |")
    if any(verdict.missed for verdict in found):
        lines += ["", "Missed, and by how much of the bound:", ""]
    for verdict in found:
        bound = verdict.bound
        cells = [f"{name} {bound.told(value)} ({bound.missed_by(value):.0%})" for name, value in verdict.missed.items()]
        if cells:
            lines.append(f"- {bound}: {'; '.join(cells)}.")
    return lines
