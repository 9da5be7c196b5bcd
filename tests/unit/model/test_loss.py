from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the field's spelling
from hypothesis import given, settings
from hypothesis import strategies as st

from translane_export.model import label_smoothed_cross_entropy

PAD = 0
EXACT: dict[str, Any] = {"rtol": 1e-12, "atol": 1e-12}


def batch(rows: int, size: int, vocabulary: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(rows, size, vocabulary, generator=generator, dtype=torch.float64)
    targets = torch.randint(0, vocabulary, (rows, size), generator=generator)
    targets[:, 0] = vocabulary - 1
    targets[0, -1] = PAD
    return logits.requires_grad_(), targets


def check(logits: torch.Tensor, targets: torch.Tensor, smoothing: float) -> None:
    theirs = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=PAD, label_smoothing=smoothing)

    ours = label_smoothed_cross_entropy(logits, targets, PAD, smoothing)

    torch.testing.assert_close(ours.mean, theirs, **EXACT)
    assert ours.token_count == (targets != PAD).sum()
    (gradient,) = torch.autograd.grad(ours.mean, logits)
    (expected,) = torch.autograd.grad(theirs, logits)
    torch.testing.assert_close(gradient, expected, **EXACT)
    assert (gradient[targets == PAD] == 0).all()


@settings(max_examples=25, deadline=None)
@given(rows=st.integers(1, 3), size=st.integers(2, 5), vocabulary=st.integers(2, 9), seed=st.integers(0, 99),
       smoothing=st.sampled_from([0.0, 0.1, 0.7]))  # fmt: skip
def test_equals_torch_with_padding_and_gradient(rows, size, vocabulary, seed, smoothing):
    check(*batch(rows, size, vocabulary, seed), smoothing)


def test_rows_that_do_not_fit_a_cache_at_once_equal_torch_too():
    check(*batch(3, 401, 1001), smoothing=0.1)


def test_a_scaled_loss_scales_its_gradient():
    logits, targets = batch(2, 3, 5)
    (once,) = torch.autograd.grad(label_smoothed_cross_entropy(logits, targets, PAD, 0.1).mean, logits)
    (thrice,) = torch.autograd.grad(3 * label_smoothed_cross_entropy(logits, targets, PAD, 0.1).mean, logits)
    torch.testing.assert_close(thrice, 3 * once, **EXACT)


def test_all_padding_is_a_loss_of_zero():
    logits = torch.randn(2, 3, 5, requires_grad=True)
    result = label_smoothed_cross_entropy(logits, torch.zeros(2, 3, dtype=torch.long), PAD, 0.1)
    result.mean.backward()
    assert result.mean == 0
    assert result.token_count == 0
    assert logits.grad is not None
    assert logits.grad.abs().max() == 0


def test_half_precision_logits_are_summed_in_float32():
    logits, targets = batch(2, 3, 400)
    half = logits.detach().to(torch.bfloat16).requires_grad_()
    result = label_smoothed_cross_entropy(half, targets, PAD, 0.1)
    expected = label_smoothed_cross_entropy(half.double(), targets, PAD, 0.1)
    result.mean.backward()

    assert result.mean.dtype == torch.float32
    torch.testing.assert_close(result.mean.double(), expected.mean, rtol=1e-6, atol=0)
    assert half.grad is not None
    assert half.grad.dtype == torch.bfloat16


@pytest.mark.parametrize("smoothing", [-0.1, 1.0])
def test_smoothing_outside_its_range_is_refused(smoothing):
    with pytest.raises(ValueError, match="smoothing"):
        label_smoothed_cross_entropy(torch.randn(1, 2, 3), torch.ones(1, 2, dtype=torch.long), PAD, smoothing)
