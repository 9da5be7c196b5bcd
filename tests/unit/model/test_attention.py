from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the field's spelling

from translane_export.model.attention import MultiHeadAttention, scaled_dot_product_attention
from translane_export.model.masks import causal_mask, causal_padding_mask, padding_mask

B, H, T, S, D = 2, 3, 4, 5, 6
EXACT: dict[str, Any] = {"rtol": 1e-12, "atol": 1e-12}


def random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def test_attention_by_hand():
    queries = torch.tensor([[[[1.0, 0.0]]]])
    keys = torch.tensor([[[[1.0, 0.0], [0.0, 1.0]]]])
    values = torch.tensor([[[[10.0, 0.0], [0.0, 10.0]]]])
    first = math.exp(1 / math.sqrt(2)) / (math.exp(1 / math.sqrt(2)) + 1)

    context = scaled_dot_product_attention(queries, keys, values)

    torch.testing.assert_close(context, torch.tensor([[[[10 * first, 10 * (1 - first)]]]]))


@pytest.mark.parametrize("mask", [None, padding_mask(torch.tensor([5, 2]), S)], ids=["all", "padded"])
def test_ours_equals_the_fused_kernel_forwards_and_backwards(mask):
    inputs = (random(B, H, T, D), random(B, H, S, D), random(B, H, S, D))

    ours = scaled_dot_product_attention(*inputs, mask)
    fused = F.scaled_dot_product_attention(*inputs, attn_mask=mask)

    torch.testing.assert_close(ours, fused, **EXACT)
    gradients = torch.autograd.grad(ours.square().sum(), inputs)
    fused_gradients = torch.autograd.grad(fused.square().sum(), inputs)
    for gradient, fused_gradient in zip(gradients, fused_gradients, strict=True):
        torch.testing.assert_close(gradient, fused_gradient, **EXACT)


def test_a_query_that_may_look_nowhere_gets_zeros_and_finite_gradients():
    queries, keys, values = random(B, H, T, D), random(B, H, S, D), random(B, H, S, D)

    context = scaled_dot_product_attention(queries, keys, values, padding_mask(torch.tensor([5, 0]), S))
    context.square().sum().backward()

    assert context[1].abs().max() == 0
    assert queries.grad is not None
    assert queries.grad.isfinite().all()


def test_dropout_drops_weights_and_keeps_the_mean():
    ones = torch.ones(1, 1, 1, 20000)
    context = scaled_dot_product_attention(torch.zeros(1, 1, 1, 1), ones.mT, ones.mT, dropout=0.25)
    assert context.item() == pytest.approx(1, abs=0.03)
    assert context.item() != 1


def test_projecting_then_attending_is_forward():
    attention = MultiHeadAttention(d_model=8, heads=2, head_size=6).double()
    x, memory = random(B, T, 8), random(B, S, 8)
    mask = padding_mask(torch.tensor([5, 2]), S)

    queries, kept = attention.project_queries(x), attention.project_keys_values(memory)

    assert queries.shape == (B, 2, T, 6)
    assert kept.keys.shape == kept.values.shape == (B, 2, S, 6)
    assert torch.equal(attention.attend(queries, kept, mask), attention(x, memory, mask))


def test_head_size_is_free_of_d_model():
    attention = MultiHeadAttention(d_model=8, heads=3, head_size=5)
    assert attention.q_proj.weight.shape == (15, 8)
    assert attention.out_proj.weight.shape == (8, 15)
    assert attention(torch.randn(B, T, 8), torch.randn(B, S, 8)).shape == (B, T, 8)


def test_masks():
    lengths = torch.tensor([1, 3])
    padding = torch.tensor([[True, False, False], [True, True, True]])
    causal = torch.tensor([[True, False, False], [True, True, False], [True, True, True]])

    assert torch.equal(padding_mask(lengths, 3), padding[:, None, None, :])
    assert torch.equal(causal_mask(3), causal[None, None])
    assert torch.equal(causal_padding_mask(lengths, 3), padding[:, None, None, :] & causal)
    assert causal_padding_mask(lengths, 3).shape == (2, 1, 3, 3)
