"""Everything that is found out about a sentence, as it is printed, and as it is written for programs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from translane_export.explain.operators import GraphTime
from translane_export.explain.tensors import Attention, PositionTable, TensorStep, TokenWay
from translane_export.explain.translation import TextStep, Translated
from translane_server.bundle.manifest import Manifest
from translane_server.core.terminal import printable

_MOST_CHARACTERS = 100  # of a value in a table


@dataclass(frozen=True)
class Findings:
    """What a bundle's model does with a sentence.

    ``text_steps`` go from text to ids, and ``way`` from ids to the probabilities of the step `step`, from 0. There are
    no ``tables`` where the model has neither positions nor biases by distance.
    """

    manifest: Manifest
    translated: Translated
    attention: Attention
    tables: tuple[PositionTable, ...]
    graphs: tuple[GraphTime, ...]
    text_steps: tuple[TextStep, ...]
    way: TokenWay
    step: int

    @property
    def model(self) -> str:
        """The model in a line."""
        manifest, sizes = self.manifest, self.manifest.architecture
        return (
            f"{manifest.name} {manifest.version}, {manifest.precision}; {sizes.encoder_layers} encoder and"
            f" {sizes.decoder_layers} decoder layers, {sizes.heads} heads of {sizes.head_size}, model size"
            f" {sizes.d_model}, feed-forward size {sizes.ffn_size}"
        )

    @property
    def difference(self) -> float:
        """Largest difference of a chosen token's log-probability between the graphs and PyTorch."""
        pairs = zip(self.translated.log_probs, self.attention.log_probs, strict=True)
        return max(abs(graph - torch) for graph, torch in pairs)

    @property
    def agreement(self) -> str:
        """How far attention is that of the translation: the graphs translate, and PyTorch shows the weights."""
        return (
            f"log-probabilities of the graphs and of PyTorch differ by at most {self.difference:.1e}, over"
            f" {len(self.translated.chosen_ids)} steps"
        )

    @property
    def positions(self) -> str:
        """What there is of positions."""
        if not self.tables:
            return "The model has neither position vectors nor biases by distance."
        return "; ".join(f"{table.title}, {table.values.shape[0]} × {table.values.shape[1]}" for table in self.tables)

    @property
    def followed(self) -> str:
        """Which token's way is shown."""
        return (
            f"The way of one token: the encoder reads the whole sentence, and step {self.step + 1} of the decoder reads"
            f" “{self.translated.fed_pieces[self.step]}”. Of the layers, the first stands for all. The graphs keep the"
            " keys and values of earlier tokens."
        )

    @property
    def choice(self) -> str:
        """What comes of that token."""
        piece = self.translated.chosen_pieces[self.step]
        probability = float(self.way.probabilities[self.translated.chosen_ids[self.step]])
        graphs = math.exp(self.translated.log_probs[self.step])
        return f"The step chooses “{piece}”. Its probability is {probability:.4f}; the graphs give it {graphs:.4f}."


def as_text(findings: Findings) -> str:
    """Return the report for a terminal."""
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
        [
            findings.followed,
            *_aligned(
                [(step.name, step.size, printable(step.value, _MOST_CHARACTERS)) for step in findings.text_steps]
            ),
        ],
        _shapes(findings.way.steps),
        [findings.choice],
    ]
    return "\n\n".join("\n".join(map(printable, lines)) for lines in sections) + "\n"


def as_json(findings: Findings) -> dict[str, Any]:
    """Return what the tables show as JSON-compatible values."""
    translated = findings.translated
    return {
        "model": findings.manifest.name,
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
        "graphs": list(map(asdict, findings.graphs)),
        "tensors": list(map(asdict, findings.way.steps)),
    }


def _operators(graph: GraphTime) -> list[str]:
    rows = [
        (each.operator, f"{each.nodes:g}", f"{each.microseconds:,.1f}", f"{each.share:.1%}") for each in graph.operators
    ]
    return [f"{graph.graph}: {graph.headline}", *_aligned([("operator", "nodes", "time [µs]", "share"), *rows])]


def _shapes(steps: Sequence[TensorStep]) -> list[str]:
    rows: list[tuple[str, ...]] = []
    for part, group in groupby(steps, key=lambda step: step.part):
        rows.append((part,))
        rows += [(f"  {step.tensor}", step.shape_text, step.formula) for step in group]
    return _aligned(rows)


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Return a line for each row, with columns below each other."""
    columns = max(map(len, rows))
    widths = [max((len(row[column]) for row in rows if len(row) > column + 1), default=0) for column in range(columns)]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)).rstrip() for row in rows]
