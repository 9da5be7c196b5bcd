"""Rotary positions are products of complex numbers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from translane_export.model.positions import Rotary

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
