"""How many times as fast as CTranslate2 Translane is, in short: a row for each model and search, and what is slower."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

from benchmarks.machine import has_vnni
from benchmarks.report.ratios import LOST, over, told
from benchmarks.report.results import BUSY, Record, Results
from benchmarks.report.tables import ENGINES, median_of

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


def ratios(records: Sequence[Record]) -> dict[str, dict[str, float]]:
    """All comparisons of offline and serving records. Above 1, Translane is faster."""
    found: dict[str, dict[str, float]] = {}
    for cell in (cell for record in records for cell in record["cells"]):
        row = found.setdefault(f"{cell['model']} {cell['precision']} {cell['search']}", {})
        row |= dict(_offline(cell) if "batch" in cell else _serving(cell))
    return found


def _offline(cell: Record) -> Iterator[tuple[str, float]]:
    yield f"{_OFFLINE}{cell['batch']}", over(*(cell[name]["rate"] for name in ENGINES))


def _serving(cell: Record) -> Iterator[tuple[str, float]]:
    yield RATE, over(*(cell["highest_rate"][name] for name in ENGINES))
    if cell["grid"]:
        ours, theirs = (median_of(cell["grid"][0][name], "p50") for name in ENGINES)
        yield ALONE, over(theirs, ours)


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
