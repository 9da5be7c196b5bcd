"""The table of the offline benchmark, as Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.report.ratios import told
from benchmarks.report.results import Record


def header(machine: Mapping[str, Any]) -> str:
    """The machine, and the first lines of the table."""
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return (
        f"{machine['processor']}, {machine['cores']} cores; {versions}\n\n"
        "| model | precision | search | batch | Translane | setting | CTranslate2 | setting | ratio | CPU ratio"
        " | generate |\n"
        "|---|---|---|---:|---:|---|---:|---|---:|---:|---:|"
    )


def row(cell: Record) -> str:
    """Target tokens/s of each engine, and Translane's over CTranslate2's, by the clock and by processor time."""
    ours, theirs, other = cell["translane"], cell["ctranslate2"], cell.get("hugging_face")
    generate = f"{other['rate']:,.0f}" if other else "–"
    return (
        f"| {cell['model']} | {cell['precision']} | {cell['search']} | {cell['batch']} | {ours['rate']:,.0f} |"
        f" {ours['setting']} | {theirs['rate']:,.0f} | {theirs['setting']} | {told(ours['rate'] / theirs['rate'])} |"
        f" {told(ours['cpu_rate'] / theirs['cpu_rate'])} | {generate} |"
    )
