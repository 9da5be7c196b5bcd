"""The table of decoder steps against their matrix products, as Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any


def over_products(found: Mapping[str, Sequence[float]]) -> float:
    """The median over the rounds of a step's time over that of its products."""
    return statistics.median(step / products for step, products in zip(found["step"], found["products"], strict=True))


def table(times: Mapping[Any, Mapping[str, Sequence[float]]]) -> str:
    """Medians of both and their ratio by rows, as Markdown."""
    lines = ["| rows | products ms | step ms | step / products |", "|---:|---:|---:|---:|"]
    for rows, found in times.items():
        products, step = (statistics.median(found[name]) * 1000 for name in ("products", "step"))
        lines.append(f"| {rows} | {products:.2f} | {step:.2f} | {over_products(found):.2f} |")
    return "\n".join(lines)
