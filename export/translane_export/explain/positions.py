"""How a model tells positions apart, as tables of numbers: vectors, angles, or a bias by distance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from translane_export.model import Transformer
from translane_export.model.attention import MultiHeadAttention
from translane_export.model.masks import View
from translane_export.model.transformer import Decoder, Encoder, Stack

_DISTANCE = "place of the key less that of the query"
_MOST_POSITIONS = 128
_FURTHEST = 128  # tokens

FloatArray = npt.NDArray[np.float32]


@dataclass(frozen=True)
class PositionTable:
    """Numbers by position or distance.

    Attributes:
        title: what the numbers are.
        rows: what a row is.
        columns: what a column is.
        first_column: the number of the first column; distances begin below 0.
        values: [rows, columns].
    """

    title: str
    rows: str
    columns: str
    first_column: int
    values: FloatArray


@torch.inference_mode()
def position_tables(model: Transformer) -> tuple[PositionTable, ...]:
    """Return the tables of the model: vectors or angles by position, vectors or biases by distance; or none.

    At most 128 positions, and distances of at most 128 tokens, are looked at.
    """
    config = model.config
    stacks: dict[str, Encoder | Decoder] = {"encoder": model.encoder, "decoder": model.decoder}
    tables: list[PositionTable] = []
    for name, stack in stacks.items():
        positions = stack.embedding.positions
        if positions is not None and not (tables and config.positions == "sinusoidal"):
            count = min(config.max_positions, _MOST_POSITIONS)
            values = positions(count)
            title = "sinusoids, both stacks" if config.positions == "sinusoidal" else f"learned positions, {name}"
            tables.append(PositionTable(title, "position", "dimension", 0, values.numpy()))
    for name, stack in stacks.items():
        if stack.biases:
            tables.append(_biases(name, stack))
    if config.decoder_unit != "self-attention":
        return tuple(tables)
    attention = model.decoder.layers[0].get_submodule("self_attention")
    assert isinstance(attention, MultiHeadAttention)
    if attention.rotary is not None:
        turned = attention.rotary.cosines[:_MOST_POSITIONS]
        tables.append(PositionTable("cosines of rotary positions", "position", "pair", 0, turned.numpy()))
    if attention.relative is not None:
        vectors = attention.relative.keys[0].T  # [D, 2 * window + 1], of the first head or of all
        title = "vectors of distances for keys, decoder layer 0"
        tables.append(
            PositionTable(title, "dimension", _DISTANCE, -attention.relative.window, vectors.detach().numpy())
        )
    return tuple(tables)


def _biases(name: str, stack: Stack) -> PositionTable:
    """Return the bias of each head [H] for the distances from query to key, below 0 where the key comes first."""
    learned = stack.relative_positions
    furthest = _FURTHEST if learned is None else min(learned.furthest, _FURTHEST)
    ahead = furthest if isinstance(stack, Encoder) else 0
    view = View(furthest + 1, furthest + ahead + 1, biases=stack.biases, device=torch.device("cpu"))
    bias = view.block(furthest, furthest + 1).bias  # [1, H, 1, distances]
    assert bias is not None
    return PositionTable(f"bias on self-attention, {name}", "head", _DISTANCE, -furthest, bias[0, :, 0].numpy())
