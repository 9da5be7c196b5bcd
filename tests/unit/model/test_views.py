"""What queries see: windows are those of the package `local-attention`, with padding and other rules."""

from __future__ import annotations

import random

import pytest
import torch
from local_attention import LocalAttention

from translane_export.model.attention import Formula
from translane_export.model.fast_attention import attend_plainly
from translane_export.model.masks import CausalRule, MaskRule, View, WindowRule


def differences(draw: random.Random) -> int:
    """How many real positions of one random case differ from the package's."""
    causal, exact, autopad = (draw.random() < 0.5 for _ in range(3))
    window, backward = draw.randint(1, 6), draw.randint(0, 2)
    forward = 0 if causal else draw.randint(0, 2)
    rows, heads = draw.randint(1, 2), draw.randint(1, 2)
    size = draw.randint(1, 20) if autopad else window * draw.randint(1, 4)
    lengths = torch.tensor([draw.randint(1, size) for _ in range(rows)])
    real = torch.arange(size) < lengths[:, None]  # [B, T]
    queries, keys, values = (torch.randn(rows, heads, size, 4, dtype=torch.float64) for _ in range(3))
    package = LocalAttention(
        window_size=window, causal=causal, look_backward=backward, look_forward=forward, autopad=autopad,
        exact_windowsize=exact, use_rotary_pos_emb=False,
    )  # fmt: skip
    rules: list[MaskRule] = [WindowRule(window, backward, forward, exact)]
    view = View(size, size, lengths, [CausalRule(), *rules] if causal else rules)
    ours = attend_plainly(Formula(4**-0.5), queries, keys, values, view).transpose(1, 2)
    # what the package pads with is hidden by its mask alone
    whole = bool(real.all()) and (causal or size % window == 0)
    theirs = package(queries, keys, values, mask=None if whole else real).transpose(1, 2)
    return int(((ours - theirs).abs().amax((-1, -2)) > 1e-12)[real].sum())


@pytest.mark.parametrize("seed", range(4))
def test_windows_are_those_of_the_package_local_attention(seed):
    draw = random.Random(seed)
    assert sum(differences(draw) for _ in range(300)) == 0
