"""The attention of a translated sentence: weights of every layer and head, with the pieces that look and are seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from translane_export.errors import ExportError
from translane_export.explain.recording import Kind, recorded_attention
from translane_export.explain.translated import Translated
from translane_export.model import Transformer
from translane_server.bundle.manifest import Architecture

MOST_WEIGHTS = 8_000_000
"""Most attention weights of a sentence. A page holds 2.7 bytes for each."""

FloatArray = npt.NDArray[np.float32]


@dataclass(frozen=True)
class AttentionWeights:
    """The weights of one kind of attention.

    Attributes:
        kind: the kind.
        title: what it is called.
        row_kind: what a row is.
        column_kind: what a column is.
        rows: the pieces that look, [T].
        columns: the pieces that are looked at, [S].
        weights: [layers, H, T, S]; a softmax makes every row of S sum to 1, and softmax₁ to less.
    """

    kind: Kind
    title: str
    row_kind: str
    column_kind: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    weights: FloatArray


@dataclass(frozen=True)
class Attention:
    """The three kinds of attention of a sentence.

    Attributes:
        kinds: the weights of each kind of attention.
        log_probs: natural log-probability of each chosen token as PyTorch computes it, [T].
    """

    kinds: tuple[AttentionWeights, ...]
    log_probs: tuple[float, ...]


def check_size(sizes: Architecture, sources: int, steps: int) -> None:
    """Refuse a sentence of so many tokens with too many attention weights to show.

    Raises:
        ExportError: there are more than `MOST_WEIGHTS`.
    """
    weights = sizes.heads * (sizes.encoder_layers * sources**2 + sizes.decoder_layers * (steps**2 + steps * sources))
    if weights > MOST_WEIGHTS:
        raise ExportError(
            f"the sentence has {weights:,} attention weights ({sources} source and {steps} target tokens in every layer"
            f" and head), and at most {MOST_WEIGHTS:,} are shown; give a shorter text, or a lower --max-length"
        )


@torch.inference_mode()
def record_translation(model: Transformer, translated: Translated) -> Attention:
    """Run `model` once over the sentence and its whole translation, and return the weights of every attention."""
    source = translated.source
    ids, lengths = torch.tensor([source.ids]), torch.tensor([len(source.ids)])
    with recorded_attention(model) as recorded:
        logits = model.decode(torch.tensor([translated.fed_ids]), model.encode(ids, lengths), lengths)  # [1, T, V]
    chosen = torch.tensor(translated.chosen_ids)[:, None]
    log_probs = logits[0].log_softmax(-1).gather(1, chosen)[:, 0]
    step, looked_at = "token that the step chooses", "source piece that is looked at"
    return Attention(
        (
            AttentionWeights(
                "cross",
                "Cross-attention",
                step,
                looked_at,
                translated.chosen_pieces,
                source.pieces,
                _stacked(recorded["cross"]),
            ),
            AttentionWeights(
                "encoder",
                "Encoder self-attention",
                "source piece",
                looked_at,
                source.pieces,
                source.pieces,
                _stacked(recorded["encoder"]),
            ),
            AttentionWeights(
                "decoder",
                "Decoder self-attention",
                step,
                "target piece that is looked at",
                translated.chosen_pieces,
                translated.fed_pieces,
                _stacked(recorded["decoder"]),
            ),
        ),
        tuple(log_probs.tolist()),
    )


def _stacked(layers: Sequence[Tensor]) -> FloatArray:
    """Return the weights of the only sentence: [1, H, T, S] of each layer -> [layers, H, T, S]."""
    weights: FloatArray = torch.cat(list(layers)).numpy()
    return weights
