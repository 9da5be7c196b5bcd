"""The simpler simple recurrent unit against its equations, position by position."""

import pytest
import torch

from translane_export.model.ssru import SSRU


@pytest.mark.parametrize("size", [1, 2, 3, 8, 13])
def test_all_positions_at_once_are_a_loop_over_them(make_config, size):
    unit = SSRU(make_config(decoder_unit="ssru")).double()
    x = torch.randn(3, size, unit.cell_proj.in_features, dtype=torch.float64, requires_grad=True)
    cell, outputs = torch.zeros_like(x[:, 0]), []
    for here in x.unbind(1):
        forget = torch.sigmoid(here @ unit.forget_proj.weight.T + unit.forget_proj.bias)
        cell = forget * cell + (1 - forget) * (here @ unit.cell_proj.weight.T)
        outputs.append(cell.relu())
    expected = torch.stack(outputs, dim=1)
    torch.testing.assert_close(unit(x), expected, rtol=1e-12, atol=1e-12)
    values = (x, *unit.parameters())
    weights = torch.randn_like(expected)
    for ours, theirs in zip(
        torch.autograd.grad((unit(x) * weights).sum(), values),
        torch.autograd.grad((expected * weights).sum(), values),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)
