"""How attention weights come about. No other module of this room computes or captures them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from translane_export.model import Transformer
from translane_export.model.attention import MultiHeadAttention, attention_scores

Kind = Literal["encoder", "decoder", "cross"]


@dataclass(frozen=True)
class Attended:
    """The tensors of one attention over B rows, T queries and S keys.

    Attributes:
        queries: [B, H, T, D].
        keys: [B, H, S, D].
        values: [B, H, S, D].
        scores: what the softmax gets, [B, H, T, S]; -inf where a query may not look.
        weights: the softmax of the scores over the keys, [B, H, T, S]; every row sums to 1.
        context: the values, averaged by the weights, [B, H, T, D].
        output: the heads side by side, projected, [B, T, M].
    """

    queries: Tensor
    keys: Tensor
    values: Tensor
    scores: Tensor
    weights: Tensor
    context: Tensor
    output: Tensor


def run_attention(
    attention: MultiHeadAttention, x: Tensor, memory: Tensor, mask: Tensor | None = None, bias: Tensor | None = None
) -> Attended:
    """Run `attention` as its `forward` does, and return all its tensors. Every query may look at some key.

    Args:
        attention: the attention, in evaluation mode.
        x: what looks, [B, T, M].
        memory: what it looks at, [B, S, M].
        mask: True where a query may look, broadcastable to [B, H, T, S].
        bias: is added to the scores, broadcastable to [B, H, T, S].
    """
    queries = attention.project_queries(x)
    keys, values = attention.project_keys_values(memory)
    scores = attention_scores(queries, keys, bias, scaled=attention.scaled)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    weights = scores.softmax(-1)
    context = weights @ values
    output = attention.out_proj(context.transpose(1, 2).flatten(2))  # [B, H, T, D] -> [B, T, M]
    return Attended(queries, keys, values, scores, weights, context, output)


@contextlib.contextmanager
def recorded_attention(model: Transformer) -> Iterator[dict[Kind, list[Tensor]]]:
    """Give the attention weights of every layer, [B, H, T, S], by kind; each attention adds its own as it runs."""
    recorded: dict[Kind, list[Tensor]] = {"encoder": [], "decoder": [], "cross": []}

    with contextlib.ExitStack() as hooks:

        def record(kind: Kind, attention: torch.nn.Module) -> None:
            def note(module: MultiHeadAttention, arguments: tuple[Tensor, ...]) -> None:
                recorded[kind].append(run_attention(module, *arguments).weights)

            hooks.enter_context(attention.register_forward_pre_hook(note))

        for layer in model.encoder.layers:
            record("encoder", layer.get_submodule("self_attention"))
        for layer in model.decoder.layers:
            record("decoder", layer.get_submodule("self_attention"))
            record("cross", layer.get_submodule("cross_attention"))
        yield recorded
