"""Positions, by the papers' formulas."""

import math

import pytest
import torch
from torch import Tensor
from transformers.models.t5.modeling_t5 import T5Attention

from translane_export.model.positions import Rotary, bucket_table, sinusoid_table
from translane_export.model.transformer import Embedding


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


B, H = 2, 4


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
