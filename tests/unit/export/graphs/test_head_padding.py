"""Heads of padded sizes compute the same, and their weights go back to the bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from helpers.architectures import VARIANTS
from helpers.bundles import random_model
from translane_export.graphs.head_padding import key_places, pad_heads, padded_config, unpad_heads
from translane_export.model import TransformerConfig
from translane_export.model.attention import MultiHeadAttention

SIZES: dict[str, Any] = {
    "source_vocab_size": 13, "target_vocab_size": 17, "d_model": 12, "ffn_size": 10, "heads": 3,
    "encoder_layers": 1, "decoder_layers": 2, "max_positions": 16,
}  # fmt: skip
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
EVERY = VARIANTS | ODD

every_variant = pytest.mark.parametrize("variant", EVERY.values(), ids=EVERY.keys())


def model_of(variant):
    return random_model(TransformerConfig(**(SIZES | variant))).double()


@every_variant
@torch.no_grad()
def test_a_padded_model_computes_the_same(variant):
    model = model_of(variant)
    source, lengths = torch.tensor([[4, 5, 6, 7, 8, 3], [9, 3, 0, 0, 0, 0]]), torch.tensor([6, 2])
    target = torch.tensor([[2, 4, 5, 6, 7], [2, 8, 9, 0, 0]])
    expected, before = model(source, lengths, target), {k: v.clone() for k, v in model.state_dict().items()}
    padded = pad_heads(model)
    torch.testing.assert_close(padded(source, lengths, target), expected, rtol=1e-12, atol=1e-12)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]), name  # it is still what it was


@every_variant
def test_weights_come_back_to_the_bit(variant):
    model = model_of(variant)
    expected = model.state_dict()
    actual = unpad_heads(pad_heads(model).state_dict(), model.config)
    assert actual.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(actual[name], tensor), name


@every_variant
def test_sizes_are_those_that_the_operator_takes(variant):
    model = model_of(variant)
    padded = pad_heads(model)
    config = padded.config
    assert padded_config(config) == config
    assert config.head_dim == config.value_dim
    assert config.head_dim % (16 if config.positions == "rotary" else 8) == 0
    assert not config.rotary_interleaved
    assert config.score_scale == model.config.score_scale
    for module in padded.modules():
        if isinstance(module, MultiHeadAttention):
            assert module.head_size == module.value_size == config.head_dim
            assert module.scale == config.score_scale
            assert module.q_proj.weight.shape == (config.heads * config.head_dim, config.d_model)
            assert module.v_proj.weight.shape == (config.key_value_heads * config.head_dim, config.d_model)
    places = key_places(model.config)
    assert len(set(places)) == model.config.head_dim
    assert max(places) < config.head_dim


def test_all_other_weights_are_shared():
    model = model_of({"head_size": 5})
    padded = dict(pad_heads(model).named_parameters())
    apart = {name for name, tensor in model.named_parameters() if padded[name].data_ptr() != tensor.data_ptr()}
    own = ("q_proj.weight", "q_proj.bias", "k_proj.weight", "k_proj.bias", "v_proj.weight", "v_proj.bias")
    assert {name.split("attention.")[1] for name in apart} == {*own, "out_proj.weight"}
    assert all("_attention." in name for name in apart)


@pytest.mark.parametrize("variant", [{"head_size": 8}, {"head_size": 16, "positions": "rotary"}])
def test_heads_that_fit_are_left_alone(variant):
    model = model_of(variant)
    assert padded_config(model.config) is model.config
    assert pad_heads(model) is model
