"""Finds out between which numbers the inputs of a model's projections lie."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from translane_export.model import Transformer
from translane_export.quantize import Range, Ranges

_MOST_VALUES = 1 << 16  # kept of a projection's inputs
_CLIPS = np.linspace(1.0, 0.3, 29)  # of the range that holds everything


@dataclass
class _Seen:
    """Inputs of a projection: their extremes, and some of them."""

    low: float = 0.0  # zero is always in the range
    high: float = 0.0
    values: list[npt.NDArray[np.float32]] = field(default_factory=list)
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


def measure_ranges(model: Transformer, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> Ranges:
    """Run `model` over pairs of source ids and target ids (without what the decoder starts with), and return ranges.

    Of a sentence with more tokens than the model has positions, the first ones count.
    """
    seen: dict[str, _Seen] = {}
    longest = model.config.max_positions
    share = max(1, _MOST_VALUES // len(pairs))
    with torch.inference_mode(), _watched(model, seen, share):
        for source, target in pairs:
            ids = torch.tensor([list(source[:longest])])
            fed = torch.tensor([[model.config.start_id, *target][:longest]])
            model(ids, torch.tensor([ids.shape[1]]), fed)
    ranges = Ranges({}, {})
    for module, inputs in seen.items():
        graph, name = _place_in_graphs(module)
        (ranges.encoder if graph == "encoder" else ranges.decoder)[f"{name}.weight"] = inputs.best_range()
    return ranges


@contextlib.contextmanager
def _watched(model: Transformer, seen: dict[str, _Seen], share: int) -> Iterator[None]:
    """While entered, note the inputs of each projection that is one in the graphs."""

    def watch(name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        return lambda _module, inputs: seen.setdefault(name, _Seen()).add(inputs[0], share)

    projections = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    hooks = [
        module.register_forward_pre_hook(watch(name))
        for name, module in projections.items()
        if not name.endswith(("self_attention.k_proj", "self_attention.v_proj"))  # packed with the queries'
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _place_in_graphs(module: str) -> tuple[str, str]:
    """Return which graph a projection of the model is in, and its name there: see `translane_export.graphs`."""
    if module == "output_projection":
        return "decoder", module
    side, _, rest = module.partition(".layers.")
    layer, _, part = rest.partition(".")
    if part == "self_attention.q_proj":
        return side, f"packed.{layer}"
    if part in ("cross_attention.k_proj", "cross_attention.v_proj"):
        return "encoder", f"cross.{layer}.{part.removeprefix('cross_attention.')}"
    return side, f"stack.layers.{layer}.{part}"


def _squared_error(values: npt.NDArray[np.float32], limits: Range) -> float:
    units = np.clip(np.round(values / limits.scale) + np.float32(limits.zero_point), 0, 255)
    return float(np.square((units - np.float32(limits.zero_point)) * limits.scale - values).mean())
