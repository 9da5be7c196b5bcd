"""The table of students against their teacher, as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.report.ratios import told
from benchmarks.report.results import Record

HEADER = "| bundle | precision | parameters | rows | beams | BLEU | ms a sentence | ratio |"
RULE = "|---|---|" + "---:|" * (HEADER.count("|") - 3)


def row(found: Mapping[str, Any]) -> str:
    """A bundle in one setting: its BLEU, milliseconds of the processor for a sentence, and the ratio to the teacher."""
    return (
        f"| {found['bundle']} | {found['precision']} | {found['parameters']:,} | {found['rows']} | {found['beams']} |"
        f" {found['bleu']:.2f} | {found['milliseconds']:.3f} | {told(found['ratio'])} |"
    )


def lines(record: Record) -> Iterator[str]:
    """The machine and the table. The first bundle is the teacher."""
    machine = record["machine"]
    yield f"Measured {machine['time']} on {machine['processor']}, processor time. The first bundle is the teacher."
    yield "A ratio is the teacher's time over the student's. [distillation.md](distillation.md) has the recipe."
    yield ""
    yield from (HEADER, RULE, *(row(each) for each in record["rows"]))
