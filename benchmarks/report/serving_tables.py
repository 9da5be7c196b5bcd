"""The tables of the serving benchmark, as Markdown."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.engines.server_process import ENGINES
from benchmarks.report.ratios import over, told


def tables(record: Mapping[str, Any]) -> list[str]:
    """The lines of what the serving benchmark recorded: the machine, the highest rates, and the latencies."""
    machine = record["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return [
        f"{machine['processor']}, {machine['cores']} cores; {versions}; 95% within {record['bound'] * 1000:g} ms",
        "",
        *summary(record["cells"]),
        "",
        *latencies(record["cells"]),
        *by_texts(record["cells"]),
        *traces(record["cells"]),
    ]


def median_of(measurements: Sequence[Mapping[str, Any]], name: str) -> float:
    """The median of a quantile of the latency over the rounds [ms]; infinite where nothing was answered."""
    found = [each["latency_seconds"][name] for each in measurements]
    return 1000 * statistics.median(math.inf if value is None else value for value in found)


def summary(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """The table of highest rates and of the latency at low load."""
    lines = [
        "| model | precision | search | Translane, sentences/s | CTranslate2 | ratio"
        " | p50 at low load, ms | CTranslate2 | ratio | CTranslate2's setting |",
        "|---|---|---|---:|---:|---:|---:|---:|---:|---|",
    ]
    for cell in cells:
        ours, theirs = (cell["highest_rate"][name] for name in ENGINES)
        low, their_low = (median_of(cell["grid"][0][name], "p50") for name in ENGINES)
        lines.append(
            f"| {cell['model']} | {cell['precision']} | {cell['search']} | {ours:.1f} | {theirs:.1f} |"
            f" {told(over(ours, theirs))} | {low:.1f} | {their_low:.1f} | {told(over(their_low, low))} |"
            f" {cell['setting']} |"
        )
    return lines


def latencies(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """The table of latencies against rates, with the processor time of the server for a sentence."""
    lines = [
        "| model | precision | search | sentences/s | Translane p50 / p95 / p99, ms | CPU ms | failed |"
        " CTranslate2 p50 / p95 / p99, ms | CPU ms | failed | CPU ratio |",
        "|---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for cell, row in [(each, row) for each in cells for row in each["grid"]]:
        lines.append(
            f"| {cell['model']} | {cell['precision']} | {cell['search']} | {row['rate']:.1f} | {_both_engines(row)} |"
        )
    return lines


def median_rate(measurements: Sequence[Mapping[str, Any]]) -> float:
    """The median throughput of the rounds [sentences/s]."""
    return statistics.median(float(each["rate"]) for each in measurements)


def by_texts(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """The table of throughput by texts a request; nothing where it was not measured."""
    measured = [cell for cell in cells if cell.get("texts")]
    if not measured:
        return []
    lines = [
        "",
        "Sentences/s of clients that together keep as many sentences in flight, by texts a request; Translane /"
        " CTranslate2, and the ratio:",
        "",
        f"| model | precision | search | {' | '.join(str(row['texts']) for row in measured[0]['texts'])} | failed |",
        f"|---|---|---|{'---:|' * len(measured[0]['texts'])}---:|",
    ]
    for cell in measured:
        found = []
        for row in cell["texts"]:
            ours, theirs = (median_rate(row[name]) for name in ENGINES)
            found.append(f"{ours:,.0f} / {theirs:,.0f}, {told(over(ours, theirs))}")
        failed = " / ".join(str(sum(each["failed"] for row in cell["texts"] for each in row[name])) for name in ENGINES)
        lines.append(f"| {cell['model']} | {cell['precision']} | {cell['search']} | {' | '.join(found)} | {failed} |")
    return lines


def traces(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """The table of replayed traces; nothing where none was."""
    measured = [cell for cell in cells if "trace" in cell]
    if not measured:
        return []
    lines = [
        "",
        "Sentences and paragraphs in bursts, a trace that both servers get at the same moments; latency of a request:",
        "",
        "| model | precision | search | requests | sentences/s | Translane p50 / p95 / p99, ms | CPU ms | failed |"
        " CTranslate2 p50 / p95 / p99, ms | CPU ms | failed | CPU ratio |",
        "|---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for cell in measured:
        trace = cell["trace"]
        lines.append(
            f"| {cell['model']} | {cell['precision']} | {cell['search']} | {trace['requests']} | {trace['rate']:.1f} |"
            f" {_both_engines(trace)} |"
        )
    return lines


def _both_engines(row: Mapping[str, Any]) -> str:
    """Cells of each engine's latencies, processor time of a sentence and failures; and the ratio of the times."""
    parts, cpu = [], {}
    for name in ENGINES:
        cpu[name] = 1000 * statistics.median(each["cpu_seconds_per_sentence"] for each in row[name])
        failed = sum(sum(each["errors"].values()) for each in row[name])
        quantiles = " / ".join(f"{median_of(row[name], quantile):.0f}" for quantile in ("p50", "p95", "p99"))
        parts.append(f"{quantiles} | {cpu[name]:.1f} | {failed}")
    ours, theirs = cpu.values()
    return f"{' | '.join(parts)} | {told(over(theirs, ours))}"
