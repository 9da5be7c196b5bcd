"""How a model tells positions apart, as tables of numbers: position vectors, or a bias by distance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from translane_export.model import Transformer
from translane_export.model.decoder import Decoder
from translane_export.model.encoder import Encoder
from translane_export.model.relative_positions import RelativePositions

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
    """Return the tables of the model: of positions [P, M], or of biases [H, distances]; none where it has neither.

    At most 128 positions, and distances of at most 128 tokens, are looked at.
    """
    config = model.config
    stacks: dict[str, Encoder | Decoder] = {"encoder": model.encoder, "decoder": model.decoder}
    tables: list[PositionTable] = []
    for name, stack in stacks.items():
        positions = stack.embedding.positions
        if positions is not None and not (tables and config.positions == "sinusoidal"):
            count = min(config.max_positions, _MOST_POSITIONS)
            values = positions.first(count, torch.device("cpu"))
            title = "sinusoids, both stacks" if config.positions == "sinusoidal" else f"learned positions, {name}"
            tables.append(PositionTable(title, "position", "dimension", 0, values.numpy()))
    for name, stack in stacks.items():
        if stack.relative_positions is not None:
            tables.append(_biases(name, stack.relative_positions))
    return tuple(tables)


def _biases(stack: str, relative: RelativePositions) -> PositionTable:
    """Return the bias of each head [H] for the distances from query to key, below 0 where the key comes first."""
    furthest = min(relative.furthest, _FURTHEST)
    ahead = furthest if relative.both_ways else 0
    query = torch.tensor([[furthest]])
    keys = torch.arange(furthest + ahead + 1)[None, :]
    values = relative.between(query, keys)[:, 0]  # [H, 1, distances] -> [H, distances]
    return PositionTable(
        f"bias on self-attention, {stack}", "head", "place of the key less that of the query", -furthest, values.numpy()
    )
