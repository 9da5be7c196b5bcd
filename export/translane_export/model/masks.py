"""What queries see: which keys they may look at, and what their scores are raised by.

A padding mask follows from the lengths of sentences. A rule says which keys a query may see by their positions alone,
and a bias what its scores are raised by. A `View` combines them for one attention. Masks are boolean, True where a
query may look at a key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from translane_export.model.config import TransformerConfig


def padding_mask(lengths: Tensor, size: int) -> Tensor:
    """Let every query see the first ``lengths[b]`` keys of its row: [B] -> [B, 1, 1, S] with S = ``size``."""
    key_positions = torch.arange(size, device=lengths.device)
    visible = key_positions[None, :] < lengths[:, None]  # [B, S]
    return visible[:, None, None, :]  # [B, 1, 1, S]


class MaskRule(Protocol):
    """Which keys a query may see, whatever the sentence."""

    def sees(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return whether queries at positions [..., T, 1] see keys at positions [..., S]: -> boolean [..., T, S]."""
        ...


@dataclass(frozen=True)
class CausalRule:
    """A query sees its own position and those before it (paper §3.2.3)."""

    def sees(self, queries: Tensor, keys: Tensor) -> Tensor:
        """See `MaskRule`."""
        return keys <= queries


@dataclass(frozen=True)
class BlockRule:
    """A query sees ``block_length`` positions on either side of its own: |i - j| ≤ block_length.

    The block-local attention of Glow-TTS's encoder (Kim et al. 2020, https://arxiv.org/abs/2005.11129).
    """

    block_length: int

    def sees(self, queries: Tensor, keys: Tensor) -> Tensor:
        """See `MaskRule`."""
        return (queries - keys).abs() <= self.block_length


@dataclass(frozen=True)
class WindowRule:
    """Windowed local attention, with the meaning of the package `local-attention` 1.x.

    Positions are cut into windows of ``window_size``. A query in window n sees the windows from n - look_backward to
    n + look_forward. If ``exact``, it sees no further than look_backward · window_size positions back, nor further
    than look_forward · window_size positions ahead. https://pypi.org/project/local-attention/
    """

    window_size: int
    look_backward: int
    look_forward: int
    exact: bool

    def sees(self, queries: Tensor, keys: Tensor) -> Tensor:
        """See `MaskRule`."""
        size = self.window_size
        windows = torch.div(keys, size, rounding_mode="floor") - torch.div(queries, size, rounding_mode="floor")
        seen = torch.logical_and(windows >= -self.look_backward, windows <= self.look_forward)
        if self.exact:
            ahead = keys - queries
            near = torch.logical_and(ahead >= -self.look_backward * size, ahead <= self.look_forward * size)
            seen = torch.logical_and(seen, near)
        return seen


def build_rules(config: TransformerConfig, *, causal: bool) -> tuple[MaskRule, ...]:
    """Return which positions see which in a stack's self-attention, padding apart. A decoder's is ``causal``."""
    rules: list[MaskRule] = [CausalRule()] if causal else []
    if config.block_length:
        rules.append(BlockRule(config.block_length))
    if config.window_size:
        forward = 0 if causal else config.look_forward
        rules.append(WindowRule(config.window_size, config.look_backward, forward, config.exact_window))
    return tuple(rules)


class DistanceBias(Protocol):
    """What a score is raised by, by the positions of its query and its key."""

    def between(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return the bias from positions [..., T, 1] to positions [..., S]: -> [..., H or 1, T, S]."""
        ...


class Seen(NamedTuple):
    """What T queries see of S keys: ``mask`` [B or 1, 1, T or 1, S], True where they look, and ``bias`` [1, H, T, S].

    The mask None hides no key, and the bias None is zero. ``query_positions`` is [T, 1], ``key_positions`` is [S].
    """

    mask: Tensor | None
    bias: Tensor | None
    query_positions: Tensor
    key_positions: Tensor


class View:
    """What every query of a batch sees, found for some queries at a time or for all.

    ``lengths`` [B] say how many keys of each row are no padding; None means all. All rules must agree that a query sees
    a key, and biases add up. Masks are made where the lengths are, or else on ``device``.
    """

    def __init__(
        self,
        queries: int,
        keys: int,
        lengths: Tensor | None = None,
        rules: Sequence[MaskRule] = (),
        biases: Sequence[DistanceBias] = (),
        device: torch.device | None = None,
    ) -> None:
        self.queries, self.keys = queries, keys
        self._lengths, self._rules, self._biases = lengths, rules, biases
        self._device = device if lengths is None else lengths.device

    @cached_property
    def whole(self) -> Seen:
        """What all queries see. The layers of a stack share it."""
        return self.block(0, self.queries)

    @property
    def has_biases(self) -> bool:
        """Whether scores are raised."""
        return bool(self._biases)

    def block(self, first: int, last: int) -> Seen:
        """Return what the queries from ``first`` up to ``last`` see."""
        queries = torch.arange(first, last, device=self._device)[:, None]  # [t, 1]
        keys = torch.arange(self.keys, device=self._device)  # [S]
        mask = None if self._lengths is None else padding_mask(self._lengths, self.keys)  # [B, 1, 1, S]
        for rule in self._rules:
            seen = rule.sees(queries, keys)[None, None]  # [1, 1, t, S]
            mask = seen if mask is None else mask & seen
        bias: Tensor | None = None
        for each in self._biases:
            raised = each.between(queries, keys)[None]  # [1, H or 1, t, S]
            bias = raised if bias is None else bias + raised
        return Seen(mask, bias, queries, keys)
