"""How many times as fast as CTranslate2 Translane is, in short: a row for each model and search, and what is slower.

And the bounds that the project holds its speed to, and whether measurements keep them.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from benchmarks.machine import has_vnni
from benchmarks.report.results import BUSY, ENGINES, LOST, Record, Results, alone, name_of, over, told

FAMILIES = {"vnni": "with VNNI", "avx2": "without VNNI"}
RATE, ALONE = "server: rate", "server: alone"
COLUMNS = ("batch 1", "batch 8", "batch 32", RATE, ALONE)
_OFFLINE = "batch "

# What was compared, such as "demo int8 greedy" → where, such as "batch 8" → how many times as fast Translane is.
Ratios = Mapping[str, Mapping[str, float]]


def records_of(results: Results, family: str) -> list[Record]:
    """The offline and serving records of a kind of processors."""
    found = [*results["offline"], *results["serving"]]
    if all(has_vnni(record["machine"]["processor"]) for record in found):
        found += results["without_vnni"]  # else the others are of such a processor themselves
    return [
        record for record in found if record["cells"] and has_vnni(record["machine"]["processor"]) == (family == "vnni")
    ]


def ratios(records: Sequence[Record], kind: str = "") -> dict[str, dict[str, float]]:
    """All comparisons of offline and serving records. Above 1, Translane is faster. `kind` ends their names."""
    found: dict[str, dict[str, float]] = {}
    for cell in (cell for record in records for cell in record["cells"]):
        row = found.setdefault(name_of(cell) + kind, {})
        if "batch" in cell:
            row[f"{_OFFLINE}{cell['batch']}"] = over(*(cell[name]["rate"] for name in ENGINES))
            continue
        row[RATE] = over(*(cell["highest_rate"][name] for name in ENGINES))
        if cell["grid"]:
            ours, theirs = alone(cell)
            row[ALONE] = over(theirs, ours)
    return found


def lines(records: Sequence[Record]) -> Iterator[str]:
    """The short table of records of one kind of processors, and what it says in a sentence or two."""
    found = ratios(records)
    machines = dict.fromkeys(
        f"{record['machine']['processor']}, {record['machine']['cores']} cores" for record in records
    )
    days = dict.fromkeys(record["machine"]["time"].partition("T")[0] for record in records)
    yield f"{'; '.join(machines)}; measured on {' and '.join(days)}."
    if any(record["usage"]["others"] > BUSY for record in records):
        yield "**The machine was in use**: these ratios are rough."
    yield ""
    yield from (f"| model, precision, search | {' | '.join(COLUMNS)} |", "|---|" + "---:|" * len(COLUMNS))
    for name, row in found.items():
        yield f"| {name} | {' | '.join(told(row.get(column)) for column in COLUMNS)} |"
    yield ""
    yield from _sentences(found)


def _sentences(found: Ratios) -> Iterator[str]:
    """How many comparisons are won, offline and of servers."""
    offline = [value for row in found.values() for where, value in row.items() if where.startswith(_OFFLINE)]
    servers = [value for row in found.values() for where, value in row.items() if not where.startswith(_OFFLINE)]
    for values, where in ((offline, "offline comparisons"), (servers, "comparisons of servers")):
        if values:
            won = sum(value >= LOST for value in values)
            median = statistics.median(values)
            yield f"Translane is as fast or faster in {won} of {len(values)} {where}; the median is {median:.2f}."


class Bound(NamedTuple):
    """What a quantity has to be at least, what is aimed at beyond it, and what was measured, by where."""

    name: str
    limit: float
    aim: float | None
    measured: Mapping[str, float]


def bounds(results: Results) -> Iterator[str]:
    """A row for each bound of which something was measured: how many cells keep it, and the worst one."""
    rows = ratios([*results["offline"], *results["serving"]]) | ratios(results["without_vnni"], " without VNNI")
    cells = {(name, where): value for name, row in rows.items() for where, value in row.items()}
    found = []
    for title, limit, aim, precision, place in (
        ("offline, fp32: tokens/s over CTranslate2's", 1.0, 1.3, " fp32 ", _OFFLINE),
        ("offline, int8: tokens/s over CTranslate2's", 1.2, 2.0, " int8 ", _OFFLINE),
        ("serving: highest rate over CTranslate2's", 2.0, 3.0, "", RATE),
        ("serving: CTranslate2's median latency at low load over Translane's", 1.0, None, "", ALONE),
    ):
        measured = {
            f"{name} {where}": value
            for (name, where), value in cells.items()
            if precision in name and where.startswith(place)
        }
        found.append(Bound(title, limit, aim, measured))
    memory = {f"{record['requests']:,} requests": 1 / (1 + record["growth"]) for record in results["soak"]}
    found.append(Bound("memory: at first over at last, while requests are served", 0.95, None, memory))
    table = [_row(bound) for bound in found if bound.measured]
    if table:
        yield from ("### Bounds", "", "| bound | aim | kept | worst | where |", "|---|---:|---:|---:|---|", *table, "")


def _row(bound: Bound) -> str:
    kept = sum(value >= bound.limit for value in bound.measured.values())
    worst, value = min(bound.measured.items(), key=lambda item: item[1])
    aim = f"{bound.aim:.1f}" if bound.aim else ""
    return f"| {bound.name} ≥ {bound.limit:g} | {aim} | {kept} of {len(bound.measured)} | {value:.2f} | {worst} |"
