"""Position encodings: the paper's sinusoids (§3.5) and learned vectors."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from translane_export.model.config import TransformerConfig


def sinusoid_table(max_positions: int, d_model: int) -> Tensor:
    """Return the paper's table [max_positions, M] in float32.

    PE(pos, 2i) = sin(pos / 10000^(2i/M)), PE(pos, 2i+1) = cos(pos / 10000^(2i/M)). Computed in float64: far
    positions lose several digits of the angle in float32.
    """
    positions = torch.arange(max_positions, dtype=torch.float64)  # [max_positions]
    even_dimensions = torch.arange(0, d_model, 2, dtype=torch.float64)  # [M / 2]
    angles = positions[:, None] / 10000.0 ** (even_dimensions / d_model)  # [max_positions, M / 2]
    interleaved = torch.stack((angles.sin(), angles.cos()), dim=-1)  # [max_positions, M / 2, 2]
    return interleaved.flatten(1).float()  # [max_positions, M]


class Positions(nn.Module):
    """Looks up one vector per position; which table it reads is what the two kinds differ in."""

    def __init__(self, max_positions: int) -> None:
        super().__init__()
        self.max_positions = max_positions

    def forward(self, positions: Tensor) -> Tensor:
        """Look up positions of any shape [...]: -> [..., M]. Raises ValueError for one outside the limit."""
        self._check(positions)
        return self.lookup(positions)

    def lookup(self, positions: Tensor) -> Tensor:
        """Look up positions known to be inside the limit."""
        raise NotImplementedError

    def first(self, count: int, device: torch.device) -> Tensor:
        """Look up positions 0..count-1: -> [count, M]. Raises ValueError past the limit."""
        check_highest(count - 1, self.max_positions)
        return self.lookup(torch.arange(count, device=device))

    def _check(self, positions: Tensor) -> None:
        if _capturing() or positions.numel() == 0:
            return
        lowest, highest = positions.aminmax()
        if lowest < 0:
            raise ValueError(f"position {int(lowest)} is negative")
        check_highest(int(highest), self.max_positions)


def check_highest(highest: int, max_positions: int) -> None:
    """Raise ValueError if a position is past the limit, unless a graph is being captured."""
    if not _capturing() and highest >= max_positions:
        raise ValueError(f"position {highest} is past the limit of {max_positions} positions")


def _capturing() -> bool:
    """Whether a graph is being captured: it has no values to look at yet, and whoever runs it checks its inputs."""
    tracing: bool = torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]  # public, but unannotated
    return torch.compiler.is_compiling() or tracing


class SinusoidalPositions(Positions):
    """The fixed sinusoids. The table is derived, so it is a buffer that checkpoints leave out."""

    table: Tensor

    def __init__(self, max_positions: int, d_model: int) -> None:
        super().__init__(max_positions)
        self.register_buffer("table", sinusoid_table(max_positions, d_model), persistent=False)

    def lookup(self, positions: Tensor) -> Tensor:
        """[...] -> [..., M]."""
        return self.table[positions]


class LearnedPositions(Positions):
    """One trained vector per position."""

    def __init__(self, max_positions: int, d_model: int) -> None:
        super().__init__(max_positions)
        self.embedding = nn.Embedding(max_positions, d_model)

    def lookup(self, positions: Tensor) -> Tensor:
        """[...] -> [..., M]."""
        output: Tensor = self.embedding(positions)
        return output


def build_positions(config: TransformerConfig) -> Positions | None:
    """Build the kind of position vectors the config names; None where there are none, or only attention knows them."""
    match config.positions:
        case "learned":
            return LearnedPositions(config.max_positions, config.d_model)
        case "sinusoidal":
            return SinusoidalPositions(config.max_positions, config.d_model)
    return None
