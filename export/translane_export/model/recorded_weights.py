"""Records the weights of attentions while a model runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor, nn

from translane_export.model.attention import MultiHeadAttention


@contextlib.contextmanager
def recorded_weights(attentions: Iterable[nn.Module]) -> Iterator[list[Tensor]]:
    """Give a list to which each of the `MultiHeadAttention` modules adds its weights [B, H, T, S] as it runs."""
    weights: list[Tensor] = []

    def record(attention: MultiHeadAttention, arguments: tuple[Any, ...]) -> None:
        weights.append(attention.weights(*arguments))

    with contextlib.ExitStack() as hooks:
        for attention in attentions:
            hooks.enter_context(attention.register_forward_pre_hook(record))
        yield weights
