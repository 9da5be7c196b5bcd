"""Attention and positions equal their papers' formulas, written out number by number in float64."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers.models.t5.modeling_t5 import T5Attention

from translane_export.model import Transformer
from translane_export.model.attention import MultiHeadAttention, ScaledDotProduct, normalize_scores
from translane_export.model.fast_attention import attend_by_blocks, attend_plainly
from translane_export.model.masks import BlockRule, CausalRule, View
from translane_export.model.positions import (
    Alibi,
    ProximalBias,
    RelativeVectors,
    Rotary,
    alibi_slopes,
    bucket_table,
    sinusoid_table,
)
from translane_export.model.transformer import Embedding

B, H, T, D, V = 2, 4, 9, 3, 2
SCALE = 0.7
LENGTHS = [9, 6]
EXACT: dict[str, Any] = {"rtol": 1e-11, "atol": 1e-11}
Inputs = tuple[Tensor, Tensor, Tensor]  # queries, keys, values
# r_k or r_v of a head and a distance j - i
Vector = Callable[[int, int], np.ndarray | None]


def no_vector(head: int, offset: int) -> None:
    return None


def by_loops(
    inputs: Inputs,
    *,
    key_vector: Vector = no_vector,
    value_vector: Vector = no_vector,
    bias: Callable[[int, int, int], float] = lambda head, i, j: 0.0,
    sees: Callable[[int, int], bool] = lambda i, j: True,
    one: bool = False,
) -> Tensor:
    """Return Σ_j w_ij (v_j + r_v), where s_ij = scale · q_i · (k_j + r_k) + bias and w_ij = exp(s_ij) / (Σ exp(s_ij)).

    ``one`` adds 1 to that sum.
    """
    queries, keys, values = (tensor.detach().numpy() for tensor in inputs)
    sharing = queries.shape[1] // keys.shape[1]
    context = np.zeros((*queries.shape[:3], values.shape[3]))
    for row, head, i in np.ndindex(*queries.shape[:3]):
        terms: list[tuple[float, np.ndarray]] = []
        for j in range(LENGTHS[row]):
            if not sees(i, j):
                continue
            key, value = keys[row, head // sharing, j], values[row, head // sharing, j]
            of_key, of_value = key_vector(head, j - i), value_vector(head, j - i)
            key = key if of_key is None else key + of_key
            value = value if of_value is None else value + of_value
            terms.append((np.exp(SCALE * np.dot(queries[row, head, i], key) + bias(head, i, j)), value))
        total = sum(weight for weight, _ in terms) + (1.0 if one else 0.0)
        for weight, value in terms:
            context[row, head, i] += weight / total * value
    return torch.from_numpy(context)


def inputs(groups: int = H) -> Inputs:
    shapes = ((B, H, T, D), (B, groups, T, D), (B, groups, T, V))
    queries, keys, values = (torch.randn(*shape, dtype=torch.float64) for shape in shapes)
    return queries, keys, values


def ours(given: Inputs, rules=(), biases=(), **formula: Any) -> Tensor:
    view = View(T, T, torch.tensor(LENGTHS), rules, biases)
    made = ScaledDotProduct(SCALE, **formula)
    plainly = attend_plainly(made, *given, view)
    torch.testing.assert_close(attend_by_blocks(made, *given, view, block=4), plainly, **EXACT)
    return plainly


@pytest.mark.parametrize("groups", [4, 2, 1])
@pytest.mark.parametrize("one", [False, True])
def test_grouped_heads_and_either_denominator(groups, one):
    given = inputs(groups)
    torch.testing.assert_close(ours(given, one_in_denominator=one), by_loops(given, one=one), **EXACT)


def relative_embeddings(*, clipped: bool, shared: bool, window: int = 3) -> RelativeVectors:
    return RelativeVectors(window=window, tables=1 if shared else H, key_size=D, value_size=V, clipped=clipped).double()


@pytest.mark.parametrize("clipped", [True, False])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("window", [1, 3, 20])
def test_relative_vectors_join_keys_and_values(clipped, shared, window):
    """Shaw et al. 2018, equations 3 and 4: a distance beyond the window has its edge's vector, or none."""
    relative, given = relative_embeddings(clipped=clipped, shared=shared, window=window), inputs(groups=2)

    def look_up(table: Tensor) -> Vector:
        numbers = table.detach().numpy()

        def vector(head: int, offset: int) -> np.ndarray | None:
            if not clipped and abs(offset) > window:
                return None
            found: np.ndarray = numbers[0 if shared else head, max(-window, min(window, offset)) + window]
            return found

        return vector

    expected = by_loops(given, key_vector=look_up(relative.keys), value_vector=look_up(relative.values))
    torch.testing.assert_close(ours(given, relative=relative), expected, **EXACT)


def test_the_proximal_bias_falls_with_the_logarithm_of_the_distance():
    given, bias = inputs(), ProximalBias().double()
    expected = by_loops(given, bias=lambda head, i, j: -np.log1p(abs(i - j)))
    torch.testing.assert_close(ours(given, biases=[bias]), expected, **EXACT)


def test_alibi_falls_with_the_distance_at_a_slope_for_each_head():
    given, bias = inputs(), Alibi(H).double()
    slopes = [1 / 4, 1 / 16, 1 / 64, 1 / 256]
    expected = by_loops(given, bias=lambda head, i, j: -slopes[head] * abs(i - j))
    torch.testing.assert_close(ours(given, biases=[bias]), expected, **EXACT)


@pytest.mark.parametrize(("heads", "below"), [(12, 8), (6, 4), (3, 2), (7, 4), (9, 8)])
def test_alibi_s_other_slopes_lie_between_those_of_powers_of_two(heads, below):
    """The slopes of the power below, and then every other one of the power above, which lie halfway on a log scale."""
    slopes = alibi_slopes(heads)
    assert slopes[:below] == alibi_slopes(below)
    assert slopes[below:] == pytest.approx(alibi_slopes(2 * below)[::2][: heads - below], rel=1e-15)
    assert len(set(slopes)) == heads


@pytest.mark.parametrize("length", [1, 2, 8, 40])
@pytest.mark.parametrize("causal", [False, True])
def test_block_local_attention_ends_on_either_side(length, causal):
    given = inputs()
    rules = [CausalRule(), BlockRule(length)] if causal else [BlockRule(length)]
    expected = by_loops(given, sees=lambda i, j: abs(i - j) <= length and (j <= i or not causal))
    torch.testing.assert_close(ours(given, rules), expected, **EXACT)


def test_softmax1_attends_to_nothing_where_all_scores_are_very_negative():
    scores = torch.full((2, 5), -200.0, dtype=torch.float64)
    assert normalize_scores(scores, one_in_denominator=True).max() < 1e-80
    assert normalize_scores(scores).sum(-1).tolist() == pytest.approx([1, 1])
    enormous = torch.tensor([1e30, 3.0])  # whose exponential no float holds
    assert normalize_scores(enormous, one_in_denominator=True).tolist() == [1, 0]


@pytest.mark.parametrize("proximal", [False, True])
def test_proximal_init_starts_with_keys_projected_as_queries_are(make_config, proximal):
    model = Transformer(make_config(proximal_init=proximal))
    layer: Any = model.encoder.layers[1]
    attention: MultiHeadAttention = layer.self_attention
    assert torch.equal(attention.k_proj.weight, attention.q_proj.weight) == proximal
    assert torch.equal(attention.k_proj.bias, attention.q_proj.bias)
    assert attention.k_proj.weight.data_ptr() != attention.q_proj.weight.data_ptr()


@pytest.mark.parametrize("d_model", [2, 6, 512])
def test_sinusoids_follow_the_papers_formula(d_model):
    table = sinusoid_table(1000, d_model)

    assert table.shape == (1000, d_model)
    for position in (0, 1, 17, 999):
        for i in range(0, d_model // 2, max(1, d_model // 8)):
            angle = position / 10000 ** (2 * i / d_model)
            assert table[position, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-7)
            assert table[position, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-7)


@pytest.mark.parametrize("kind", ["sinusoidal", "learned", "rotary"])
def test_positions_up_to_the_limit_and_no_further(make_config, kind):
    embedding = Embedding(make_config(positions=kind, max_positions=5), vocab_size=13)
    assert embedding(torch.full((2, 5), 4)).shape == (2, 5, 16)
    with pytest.raises(ValueError, match="position 5 is past the limit of 5 positions"):
        embedding(torch.full((2, 6), 4))


def turned_as_complex_numbers(x: Tensor, positions: Tensor, base: float, *, interleaved: bool) -> Tensor:
    """Su et al. 2021, equation 16: a pair of numbers is one complex number times e^(i · p · base^(-2k/D))."""
    size = x.shape[-1]
    pairs = x.unflatten(-1, (-1, 2)) if interleaved else x.unflatten(-1, (2, -1)).transpose(-1, -2)
    angles = positions[:, None].double() * base ** (-2 * torch.arange(size // 2, dtype=torch.float64) / size)
    numbers = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * torch.exp(1j * angles))
    return numbers.flatten(-2) if interleaved else numbers.transpose(-1, -2).flatten(-2)


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize(("size", "base"), [(2, 10_000.0), (6, 10_000.0), (10, 500.0)])
def test_rotary_positions_multiply_complex_numbers(interleaved, size, base):
    rotary, x = Rotary(size, 64, base, interleaved=interleaved), torch.randn(B, H, 50, size).double()
    expected = turned_as_complex_numbers(x, torch.arange(50), base, interleaved=interleaved)
    torch.testing.assert_close(rotary(x), expected, rtol=0, atol=1e-6)  # angles are kept in float32
    rows = torch.tensor([[3, 40], [17, 0]])
    picked = torch.stack([x[row, :, at] for row, at in enumerate(rows)])
    at = torch.stack([expected[row, :, at] for row, at in enumerate(rows)])
    torch.testing.assert_close(rotary(picked, rows), at, rtol=0, atol=1e-6)
    assert torch.equal(rotary(x)[0, 0, 0], x[0, 0, 0])


@pytest.mark.parametrize(("buckets", "furthest"), [(4, 3), (6, 17), (8, 20), (32, 128), (32, 17)])
@pytest.mark.parametrize("both_ways", [False, True])
def test_buckets_are_those_of_transformers(buckets, furthest, both_ways):
    offsets = torch.arange(-furthest if both_ways else 0, furthest + 1)
    expected = T5Attention._relative_position_bucket(-offsets, both_ways, buckets, furthest)
    assert torch.equal(bucket_table(buckets, furthest, both_ways=both_ways), expected)
