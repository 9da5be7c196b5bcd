"""Finds out between which numbers a model's activations lie: what its projections meet, and what the decoder keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from translane_export.checks.activations import watched
from translane_export.core.ranges import LEVELS, Range, Ranges
from translane_export.int8.keys_values import LARGEST
from translane_export.model import Transformer
from translane_server.core.arrays import FloatArray

_MOST_VALUES = 1 << 16  # kept of those at one place
_CLIPS = np.linspace(1.0, 0.3, 29)  # of the range that holds everything
_SMALLEST = 1e-12
_KEPT = ("cross_attention.k_proj", "cross_attention.v_proj")


@dataclass
class _Seen:
    """Numbers that were seen at one place: their extremes, and some of them."""

    low: float = 0.0  # zero is always in the range
    high: float = 0.0
    values: list[FloatArray] = field(default_factory=list)
    room: int = _MOST_VALUES

    def add(self, x: Tensor, most: int) -> None:
        flat = x.detach().float().flatten()
        self.low = min(self.low, float(flat.min()))
        self.high = max(self.high, float(flat.max()))
        count = min(most, self.room, len(flat))
        if count:
            self.values.append(flat[:: max(1, len(flat) // count)][:count].numpy().copy())
            self.room -= count

    def best_range(self) -> Range:
        """Return the range with the least squared error, of those that cut the extremes off to some degree."""
        values = np.concatenate(self.values)
        ranges = [Range(self.low * clip, self.high * clip) for clip in _CLIPS.tolist()]
        return min(ranges, key=lambda each: _squared_error(values, each))

    def best_scale(self) -> np.float32:
        """Return the unit of int8 with the least squared error, of those that cut the extremes off to some degree."""
        values = np.concatenate(self.values)
        largest = np.float32(max(self.high, -self.low, _SMALLEST) / LARGEST)
        scales = [largest * np.float32(clip) for clip in _CLIPS.tolist()]
        return min(scales, key=lambda scale: _error_of_units(values, scale, 0, -LARGEST - 1, LARGEST))


def measure_ranges(model: Transformer, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> Ranges:
    """Run `model` over pairs of source ids and target ids (without what the decoder starts with), and return ranges.

    Of a sentence with more tokens than the model has positions, the first ones count.
    """
    met: dict[str, _Seen] = {}  # inputs of each projection that is one in the graphs, by the name of its module
    kept: dict[str, _Seen] = {}  # keys and values of cross-attention, by their names in the graphs
    longest = model.config.max_positions
    share = max(1, _MOST_VALUES // len(pairs))

    def see(name: str, module: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> None:
        if not isinstance(module, nn.Linear) or name.endswith(("self_attention.k_proj", "self_attention.v_proj")):
            return  # the latter are packed with the queries'
        met.setdefault(name, _Seen()).add(given[0], share)
        if name.endswith(_KEPT):
            layer, part = name.split(".")[2], "key" if name.endswith("k_proj") else "value"
            kept.setdefault(f"cross_{part}_{layer}", _Seen()).add(output, share)

    with torch.inference_mode(), watched(model, see):
        for source, target in pairs:
            ids = torch.tensor([list(source[:longest])])
            fed = torch.tensor([[model.config.start_id, *target][:longest]])
            model(ids, torch.tensor([ids.shape[1]]), fed)
    ranges = Ranges({}, {}, {name: outputs.best_scale() for name, outputs in kept.items()})
    for module, inputs in met.items():
        graph, name = place_in_graphs(module)
        (ranges.encoder if graph == "encoder" else ranges.decoder)[f"{name}.weight"] = inputs.best_range()
    return ranges


def place_in_graphs(module: str) -> tuple[str, str]:
    """Return which graph a projection of the model is in, and its name there: see `translane_export.graphs`."""
    if module == "output_projection":
        return "decoder", module
    side, _, rest = module.partition(".layers.")
    layer, _, part = rest.partition(".")
    if part == "self_attention.q_proj":
        return side, f"packed.{layer}"
    if part in _KEPT:
        return "encoder", f"cross.{layer}.{part.removeprefix('cross_attention.')}"
    return side, f"stack.layers.{layer}.{part}"


def _squared_error(values: FloatArray, limits: Range) -> float:
    return _error_of_units(values, limits.scale, int(limits.zero_point), 0, LEVELS)


def _error_of_units(values: FloatArray, scale: np.float32, zero_point: int, lowest: int, highest: int) -> float:
    """Return the mean squared error of values in units from `lowest` to `highest`."""
    zero = np.float32(zero_point)
    units = np.clip(np.round(values / scale) + zero, lowest, highest)
    return float(np.square((units - zero) * scale - values).mean())
