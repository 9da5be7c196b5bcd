"""Multi-head attention: its sizes, its initial weights, and what dropout drops."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from translane_export.model import Transformer
from translane_export.model.attention import Formula, MultiHeadAttention
from translane_export.model.fast_attention import attend_by_blocks, attend_fused, attend_plainly
from translane_export.model.masks import View

B, T, S = 2, 4, 5
EXACT: dict[str, Any] = {"rtol": 1e-12, "atol": 1e-12}
PADDED = View(T, S, torch.tensor([5, 2]))


def random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("way", [attend_plainly, attend_fused, attend_by_blocks])
def test_dropout_drops_weights_and_keeps_the_mean(way):
    ones = torch.ones(1, 1, 20000, 1)
    context = way(Formula(1.0), torch.zeros(1, 1, 1, 1), ones, ones, View(1, 20000), dropout=0.25)
    assert context.item() == pytest.approx(1, abs=0.03)
    assert context.item() != 1


def test_blocks_drop_the_same_weights_once_more_in_the_backward_pass():
    """The context is linear in the values, so its gradient tells which weights the backward pass had."""
    queries, keys, values = random(1, 1, 9, 2), random(1, 1, 9, 2), random(1, 1, 9, 1)
    context = attend_by_blocks(Formula(1.0), queries, keys, values, View(9, 9), dropout=0.5, block=4)
    (gradient,) = torch.autograd.grad(context.sum(), values)
    torch.testing.assert_close((gradient * values).sum(), context.sum(), **EXACT)


def test_every_size_is_free_of_the_others():
    attention = MultiHeadAttention(
        d_model=8, heads=6, head_size=5, value_size=3, kv_heads=2, out_size=7, biases=False
    ).double()
    shapes = {name: tuple(tensor.shape) for name, tensor in attention.state_dict().items()}
    assert shapes == {
        "q_proj.weight": (6 * 5, 8),
        "k_proj.weight": (2 * 5, 8),
        "v_proj.weight": (2 * 3, 8),
        "out_proj.weight": (7, 6 * 3),
    }
    x, memory = random(B, T, 8), random(B, S, 8)
    kept = attention.project_keys_values(memory)
    assert (kept.keys.shape, kept.values.shape) == ((B, 2, S, 5), (B, 2, S, 3))
    assert attention(x, memory, PADDED).shape == (B, T, 7)
    assert attention.weights(x, memory, PADDED).shape == (B, 6, T, S)


@pytest.mark.parametrize("proximal", [False, True])
def test_proximal_init_starts_with_keys_projected_as_queries_are(make_config, proximal):
    model = Transformer(make_config(proximal_init=proximal))
    layer: Any = model.encoder.layers[1]
    attention: MultiHeadAttention = layer.self_attention
    assert torch.equal(attention.k_proj.weight, attention.q_proj.weight) == proximal
    assert torch.equal(attention.k_proj.bias, attention.q_proj.bias)
    assert attention.k_proj.weight.data_ptr() != attention.q_proj.weight.data_ptr()
