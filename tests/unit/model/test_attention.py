"""Multi-head attention: its projections, its sizes, its initial weights, and what a query sees."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from translane_export.model import Transformer
from translane_export.model.attention import MultiHeadAttention
from translane_export.model.attention_kernels import Formula, attend, attend_by_blocks, attend_fused, attend_plainly
from translane_export.model.views import View

B, H, T, S, D = 2, 3, 4, 5, 6
EXACT: dict[str, Any] = {"rtol": 1e-12, "atol": 1e-12}
PAPER = Formula(scale=D**-0.5)
EVERYTHING = View(T, S)
PADDED = View(T, S, torch.tensor([5, 2]))


def random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def test_attention_by_hand():
    queries = torch.tensor([[[[1.0, 0.0]]]])
    keys = torch.tensor([[[[1.0, 0.0], [0.0, 1.0]]]])
    values = torch.tensor([[[[10.0, 0.0], [0.0, 10.0]]]])
    first = math.exp(1 / math.sqrt(2)) / (math.exp(1 / math.sqrt(2)) + 1)

    context = attend(Formula(2**-0.5), queries, keys, values, View(1, 2))

    torch.testing.assert_close(context, torch.tensor([[[[10 * first, 10 * (1 - first)]]]]))


@pytest.mark.parametrize("way", [attend_fused, attend_by_blocks])
@pytest.mark.parametrize("view", [EVERYTHING, PADDED], ids=["all", "padded"])
def test_every_way_is_the_plain_one_forwards_and_backwards(way, view):
    inputs = (random(B, H, T, D), random(B, H, S, D), random(B, H, S, D))

    plain = attend_plainly(PAPER, *inputs, view)
    other = way(PAPER, *inputs, view)

    torch.testing.assert_close(plain, other, **EXACT)
    gradients = torch.autograd.grad(plain.square().sum(), inputs)
    other_gradients = torch.autograd.grad(other.square().sum(), inputs)
    for gradient, other_gradient in zip(gradients, other_gradients, strict=True):
        torch.testing.assert_close(gradient, other_gradient, **EXACT)


@pytest.mark.parametrize("way", [attend_plainly, attend_fused, attend_by_blocks])
def test_a_query_that_may_look_nowhere_gets_zeros_and_finite_gradients(way):
    queries, keys, values = random(B, H, T, D), random(B, H, S, D), random(B, H, S, D)

    context = way(PAPER, queries, keys, values, View(T, S, torch.tensor([5, 0])))
    context.square().sum().backward()

    assert context[1].abs().max() == 0
    for given in (queries, keys, values):
        assert given.grad is not None
        assert given.grad.isfinite().all()


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


def test_grouped_queries_are_heads_that_are_repeated():
    grouped = MultiHeadAttention(d_model=8, heads=6, head_size=4, kv_heads=2, value_size=3).double()
    whole = MultiHeadAttention(d_model=8, heads=6, head_size=4, value_size=3).double()
    with torch.no_grad():
        for name in ("q_proj", "out_proj"):
            getattr(whole, name).load_state_dict(getattr(grouped, name).state_dict())
        for name, size in (("k_proj", 4), ("v_proj", 3)):
            few, many = getattr(grouped, name), getattr(whole, name)
            for head in range(6):  # heads 0, 1 and 2 share the first, heads 3, 4 and 5 the second
                own, shared = slice(head * size, (head + 1) * size), slice(head // 3 * size, (head // 3 + 1) * size)
                many.weight[own] = few.weight[shared]
                many.bias[own] = few.bias[shared]
    x, memory = random(B, T, 8), random(B, S, 8)
    torch.testing.assert_close(grouped(x, memory, PADDED), whole(x, memory, PADDED), **EXACT)


def test_weights_are_those_that_make_the_context():
    attention = MultiHeadAttention(d_model=8, heads=2, head_size=4).double()
    x, memory = random(B, T, 8), random(B, S, 8)
    weights = attention.weights(x, memory, PADDED)
    context = (weights @ attention.project_keys_values(memory).values).transpose(1, 2).flatten(2)
    torch.testing.assert_close(attention.out_proj(context), attention(x, memory, PADDED), **EXACT)
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, 2, T, dtype=torch.float64))
    assert weights[1, :, :, 2:].abs().max() == 0


@pytest.mark.parametrize("proximal", [False, True])
def test_proximal_init_starts_with_keys_projected_as_queries_are(make_config, proximal):
    model = Transformer(make_config(proximal_init=proximal))
    layer: Any = model.encoder.layers[1]
    attention: MultiHeadAttention = layer.self_attention
    assert torch.equal(attention.k_proj.weight, attention.q_proj.weight) == proximal
    assert torch.equal(attention.k_proj.bias, attention.q_proj.bias)
    assert attention.k_proj.weight.data_ptr() != attention.q_proj.weight.data_ptr()
