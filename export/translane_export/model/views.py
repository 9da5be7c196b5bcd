"""What the queries of an attention see: which keys, and what their scores are raised by."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from translane_export.model.distance_biases import DistanceBias
from translane_export.model.masks import MaskRule, padding_mask


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

    Args:
        queries: T, how many queries there are.
        keys: S, how many keys there are.
        lengths: how many keys of each row are no padding, [B]; None if all are.
        rules: which keys a query may see by their positions; all rules must agree.
        biases: what scores are raised by; they add up.
        device: where masks and biases are made, if there are no lengths; else they are made where the lengths are.
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
