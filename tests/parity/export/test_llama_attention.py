"""Rotary positions and grouped queries are those of Llama, as transformers has it."""

from __future__ import annotations

import pytest
import torch
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb, repeat_kv

from translane_export.model.attention_kernels import Formula, attend_plainly, for_each_head
from translane_export.model.rotary import Rotary
from translane_export.model.views import View

B, H, T, D = 2, 6, 11, 8


@pytest.mark.parametrize("base", [10_000.0, 500_000.0])
def test_halves_turn_as_llama_s_do(base):
    queries, keys = torch.randn(2, B, H, T, D).double()
    rates = base ** (-torch.arange(0, D, 2).double() / D)
    angles = (torch.arange(T).double()[:, None] * rates).repeat(1, 2)[None]  # [1, T, D]
    expected = apply_rotary_pos_emb(queries, keys, angles.cos(), angles.sin())
    rotary = Rotary(D, T, base)
    torch.testing.assert_close((rotary(queries), rotary(keys)), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("groups", [1, 2, 3, 6])
def test_heads_share_keys_and_values_as_llama_s_do(groups):
    queries, few = torch.randn(B, H, T, D), torch.randn(B, groups, T, D)
    repeated = repeat_kv(few, H // groups)
    assert torch.equal(for_each_head(few, H // groups), repeated)
    formula, view = Formula(D**-0.5), View(T, T)
    grouped = attend_plainly(formula, queries, few, few.flip(2), view)
    whole = attend_plainly(formula, queries, repeated, repeated.flip(2), view)
    torch.testing.assert_close(grouped, whole, rtol=1e-5, atol=1e-5)
