"""Heads of padded sizes compute the same, and their weights go back to the bit."""

from typing import Any

import pytest
import torch

from helpers.architectures import VARIANTS
from helpers.bundles import SMALL_SIZES, random_model
from translane_export.graphs.head_padding import pad_heads, unpad_heads
from translane_export.model import TransformerConfig

SIZES: dict[str, Any] = SMALL_SIZES | {"source_vocab_size": 13, "d_model": 12, "heads": 3, "max_positions": 16}
ODD: dict[str, dict[str, Any]] = {
    "odd sizes": {"head_size": 5, "value_size": 3},
    "values longer, odd": {"head_size": 3, "value_size": 17},
    "one number a head": {"head_size": 1},
    "grouped": {"head_size": 5, "value_size": 11, "kv_heads": 1, "attention_biases": False},
    "no scale": {"head_size": 5, "attention_scale": False},
    "any scale": {"head_size": 5, "attention_scale": 0.3},
    "rotary, halves": {"positions": "rotary", "head_size": 6},
    "rotary, halves, short values": {"positions": "rotary", "head_size": 10, "value_size": 3},
    "rotary, halves, long values": {"positions": "rotary", "head_size": 10, "value_size": 37},
    "rotary, neighbours": {"positions": "rotary", "head_size": 6, "rotary_interleaved": True},
    "rotary, neighbours, of a size that fits": {"positions": "rotary", "head_size": 16, "rotary_interleaved": True},
    "rotary, neighbours, odd values": {
        "positions": "rotary", "head_size": 18, "value_size": 5, "rotary_interleaved": True, "kv_heads": 1,
    },
    "relative vectors by head": {"relative_window": 2, "relative_shared": False, "head_size": 5, "value_size": 9},
    "relative vectors, unclipped": {"relative_window": 2, "relative_clipped": False, "head_size": 9, "value_size": 5},
}  # fmt: skip
CELLS = {"recurrent unit": VARIANTS["recurrent unit"] | {"d_model": 16, "heads": 2}}  # it needs a multiple of 8
EVERY = VARIANTS | ODD | CELLS


@pytest.mark.parametrize("variant", EVERY.values(), ids=EVERY.keys())
@torch.no_grad()
def test_a_padded_model_computes_the_same_and_its_weights_come_back_to_the_bit(variant):
    model = random_model(TransformerConfig(**(SIZES | variant))).double()
    source, lengths = torch.tensor([[4, 5, 6, 7, 8, 3], [9, 3, 0, 0, 0, 0]]), torch.tensor([6, 2])
    target = torch.tensor([[2, 4, 5, 6, 7], [2, 8, 9, 0, 0]])
    expected, before = model(source, lengths, target), {k: v.clone() for k, v in model.state_dict().items()}
    padded = pad_heads(model)
    torch.testing.assert_close(padded(source, lengths, target), expected, rtol=1e-12, atol=1e-12)
    restored = unpad_heads(padded.state_dict(), model.config)
    assert restored.keys() == before.keys()
    for name, tensor in before.items():
        assert torch.equal(model.state_dict()[name], tensor), name  # it is still what it was
        assert torch.equal(restored[name], tensor), name
