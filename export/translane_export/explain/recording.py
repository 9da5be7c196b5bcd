"""How attention weights come about. No other module of this room computes or captures them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from translane_export.model import Transformer
from translane_export.model.attention import MultiHeadAttention, recorded_weights
from translane_export.model.masks import View

Kind = Literal["encoder", "decoder", "cross"]


@dataclass(frozen=True)
class AttentionTensors:
    """The tensors of one attention over B rows, T queries and S keys; G heads have keys and values.

    Attributes:
        queries: [B, H, T, d_k].
        keys: [B, G, S, d_k].
        values: [B, G, S, d_v].
        scores: what is normalised, [B, H, T, S]; -inf where a query may not look.
        weights: the normalised scores, [B, H, T, S]; a softmax makes every row sum to 1.
        context: the values, summed up by the weights, [B, H, T, d_v].
        output: the heads side by side, projected, [B, T, M].
    """

    queries: Tensor
    keys: Tensor
    values: Tensor
    scores: Tensor
    weights: Tensor
    context: Tensor
    output: Tensor


def run_attention(attention: MultiHeadAttention, x: Tensor, memory: Tensor, view: View) -> AttentionTensors:
    """Run `attention` as its `forward` does, and return all its tensors. Every query may look at some key.

    Args:
        attention: the attention, in evaluation mode.
        x: what looks, [B, T, M].
        memory: what it looks at, [B, S, M].
        view: what the T queries see of the S keys.
    """
    formula, seen = attention.formula, view.whole
    queries = attention.project_queries(x)
    keys, values = attention.project_keys_values(memory)
    scores = formula.scores(queries, keys, seen)
    if seen.mask is not None:
        scores = scores.masked_fill(~seen.mask, -torch.inf)
    weights = formula.weights(queries, keys, seen)
    context = formula.context(weights, values, seen)
    output = attention.out_proj(context.transpose(1, 2).flatten(2))  # [B, H, T, d_v] -> [B, T, M]
    return AttentionTensors(queries, keys, values, scores, weights, context, output)


@contextlib.contextmanager
def recorded_attention(model: Transformer) -> Iterator[dict[Kind, list[Tensor]]]:
    """Yield lists of attention weights by kind. Each attention adds its weights [B, H, T, S] as it runs."""
    attentions: dict[Kind, list[nn.Module]] = {
        "encoder": [layer.get_submodule("self_attention") for layer in model.encoder.layers],
        "decoder": [layer.get_submodule("self_attention") for layer in model.decoder.layers],
        "cross": [layer.get_submodule("cross_attention") for layer in model.decoder.layers],
    }
    with contextlib.ExitStack() as hooks:
        yield {kind: hooks.enter_context(recorded_weights(modules)) for kind, modules in attentions.items()}
