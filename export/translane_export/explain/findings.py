"""Everything that is found out about a sentence, and the sentences that say it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from translane_export.explain.attention import Attention
from translane_export.explain.operators import GraphTime
from translane_export.explain.positions import PositionTable
from translane_export.explain.shapes import TokenWay
from translane_export.explain.text_steps import TextStep
from translane_export.explain.translated import Translated
from translane_server.bundle.manifest import Manifest


@dataclass(frozen=True)
class Findings:
    """What a bundle's model does with a sentence.

    Attributes:
        manifest: the bundle's.
        translated: the sentence and its translation.
        attention: the weights, and PyTorch's probabilities.
        tables: of positions; none where the model has neither positions nor biases by distance.
        graphs: where the time goes.
        text_steps: from text to ids.
        way: from ids to probabilities, of the token that step `step` chooses.
        step: the step that is followed, from 0.
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
    def name(self) -> str:
        """The model's name."""
        return self.manifest.name

    @property
    def model(self) -> str:
        """The model in a line."""
        sizes = self.manifest.architecture
        return (
            f"{self.name} {self.manifest.version}, {self.manifest.precision}; {sizes.encoder_layers} encoder and"
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
            f" “{self.translated.fed_pieces[self.step]}”. The graphs keep the keys and values of earlier tokens."
        )

    @property
    def choice(self) -> str:
        """What comes of that token."""
        piece = self.translated.chosen_pieces[self.step]
        probability = float(self.way.probabilities[self.translated.chosen_ids[self.step]])
        graphs = math.exp(self.translated.log_probs[self.step])
        return f"The step chooses “{piece}”. Its probability is {probability:.4f}; the graphs give it {graphs:.4f}."
