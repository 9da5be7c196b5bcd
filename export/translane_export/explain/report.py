"""What is printed, and what is written for programs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from translane_export.explain.findings import Findings
from translane_export.explain.operators import GraphTime
from translane_export.explain.tensor_steps import TensorStep
from translane_server.core.terminal import printable

_MOST_CHARACTERS = 100  # of a value in a table
_LAYER = re.compile(r"(?<=layer )\d+|(?<=layers\.)\d+")


def as_text(findings: Findings) -> str:
    """Return the report for a terminal. Layers that are like the one before are told in a line."""
    translated = findings.translated
    sections = [
        [findings.model],
        _aligned(
            [
                ("text", translated.source.text),
                ("pieces", " ".join(translated.source.pieces)),
                ("translation", translated.text),
                ("its pieces", " ".join(translated.chosen_pieces)),
            ]
        ),
        [findings.agreement],
        [f"positions: {findings.positions}"],
        *(_operators(graph) for graph in findings.graphs),
        [findings.followed, *_aligned([(step.name, step.size, _short(step.value)) for step in findings.text_steps])],
        _shapes(findings.way.steps),
        [findings.choice],
    ]
    return "\n\n".join("\n".join(map(printable, lines)) for lines in sections) + "\n"


def as_json(findings: Findings) -> dict[str, Any]:
    """Return what the tables show as JSON-compatible values."""
    translated = findings.translated
    return {
        "model": findings.name,
        "model_version": findings.manifest.version,
        "precision": findings.manifest.precision,
        "text": translated.source.text,
        "source_ids": translated.source.ids,
        "source_pieces": translated.source.pieces,
        "translation": translated.text,
        "target_ids": translated.chosen_ids,
        "target_pieces": translated.chosen_pieces,
        "log_probs": translated.log_probs,
        "largest_difference": findings.difference,
        "graphs": [
            {
                "graph": graph.graph,
                "runs": graph.runs,
                "microseconds": graph.unprofiled,
                "profiled_microseconds": graph.profiled,
                "operators": [
                    {"operator": each.operator, "nodes": each.nodes, "microseconds": each.microseconds}
                    for each in graph.operators
                ],
            }
            for graph in findings.graphs
        ],
        "tensors": [
            {
                "part": step.part,
                "tensor": step.name,
                "module": step.module,
                "symbols": step.symbols,
                "shape": step.shape,
            }
            for step in findings.way.steps
        ],
    }


def _operators(graph: GraphTime) -> list[str]:
    rows = [
        (each.operator, f"{each.nodes:g}", f"{each.microseconds:,.1f}", f"{each.share:.1%}") for each in graph.operators
    ]
    return [f"{graph.graph}: {graph.headline}", *_aligned([("operator", "nodes", "time [µs]", "share"), *rows])]


def _shapes(steps: Sequence[TensorStep]) -> list[str]:
    rows: list[tuple[str, ...]] = []
    for title, part in _folded(steps):
        rows.append((title,))
        rows += [(f"  {step.name}", step.shape_text, step.formula) for step in part]
    return _aligned(rows)


def _folded(steps: Sequence[TensorStep]) -> Iterator[tuple[str, Sequence[TensorStep]]]:
    """Yield each part and its steps; of layers that are like the one before, only a title."""
    before, like, first = None, [], ""
    for part, grouped in groupby(steps, key=lambda step: step.part):
        group = tuple(grouped)
        same = [(step.name, step.symbols, step.shape, step.formula, _LAYER.sub("", step.module)) for step in group]
        if same == before:
            like.append(part)
            continue
        if like:
            yield f"{_range(like)}: as {first}", ()
        before, like, first = same, [], part
        yield part, group


def _range(parts: Sequence[str]) -> str:
    """Name layers together: "decoder layers 1 to 5"."""
    if len(parts) == 1:
        return parts[0]
    stack, _, start = parts[0].rpartition(" ")
    return f"{stack}s {start} to {parts[-1].rpartition(' ')[2]}"


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Return a line for each row, with columns below each other."""
    columns = max(map(len, rows))
    widths = [max((len(row[column]) for row in rows if len(row) > column + 1), default=0) for column in range(columns)]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)).rstrip() for row in rows]


def _short(text: str) -> str:
    return printable(text, _MOST_CHARACTERS)
