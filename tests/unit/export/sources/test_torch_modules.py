"""PyTorch's own modules are the oracle: they and Translane's model compute the same on the same weights."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from translane_export.errors import ExportError
from translane_export.model import Transformer, TransformerConfig
from translane_export.model.attention import MultiHeadAttention
from translane_export.model.layers import DecoderLayer, EncoderLayer
from translane_export.model.masks import CausalRule, View
from translane_export.sources.torch_modules import (
    attention_weights,
    decoder_layer_weights,
    encoder_layer_weights,
    module_fields,
    transformer_fields,
    transformer_weights,
    with_biases,
)

M, HEADS = 16, 2
PADDING = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
LATER = torch.ones(4, 4, dtype=torch.bool).triu(1)

pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")


def drawn(module: Any) -> Any:
    """The module in float64, with parameters that are not those it starts with."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(parameter + 0.3 * torch.randn(parameter.shape, generator=generator))
    return module.double().eval()


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def layer_config(**more: Any) -> TransformerConfig:
    return TransformerConfig(
        source_vocab_size=8, target_vocab_size=8, d_model=M, heads=HEADS, ffn_size=24, dropout=0.0, **more
    )


def assert_equal(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("bias", [True, False])
def test_attention(bias):
    theirs = drawn(nn.MultiheadAttention(M, HEADS, bias=bias, batch_first=True))
    ours = MultiHeadAttention(M, HEADS, M // HEADS, biases=bias).double()
    ours.load_state_dict(attention_weights(theirs.state_dict()))
    queries, memory = numbers(2, 4, M), numbers(2, 5, M)
    expected, _ = theirs(queries, memory, memory, key_padding_mask=PADDING)
    assert_equal(ours(queries, memory, View(4, 5, (~PADDING).sum(1))), expected)


def test_attention_with_projections_of_their_own():
    """PyTorch packs none of them where keys are of another size; the same weights packed compute the same."""
    state = drawn(nn.MultiheadAttention(M, HEADS, kdim=12, vdim=M)).state_dict()
    weights = attention_weights(state)
    assert {name: tuple(weight.shape) for name, weight in weights.items() if "proj.weight" in name} == {
        "q_proj.weight": (M, M), "k_proj.weight": (M, 12), "v_proj.weight": (M, M), "out_proj.weight": (M, M),
    }  # fmt: skip
    packed = drawn(nn.MultiheadAttention(M, HEADS)).state_dict()
    parts = dict(
        zip(("q_proj_weight", "k_proj_weight", "v_proj_weight"), packed["in_proj_weight"].chunk(3), strict=True)
    )
    unpacked = {name: each for name, each in packed.items() if name != "in_proj_weight"} | parts
    expected, found = attention_weights(packed), attention_weights(unpacked)
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)


@pytest.mark.parametrize("norm_first", [True, False])
def test_layers(norm_first):
    options: dict[str, Any] = {"norm_first": norm_first, "batch_first": True, "dropout": 0.0}
    config = layer_config(norm="pre" if norm_first else "post")
    x, memory = numbers(2, 5, M), numbers(2, 4, M)
    theirs = drawn(nn.TransformerEncoderLayer(M, HEADS, 24, **options))
    encoder_layer = EncoderLayer(config).double()
    encoder_layer.load_state_dict(encoder_layer_weights(theirs.state_dict()))
    assert_equal(encoder_layer(x, View(5, 5)), theirs(x))
    theirs = drawn(nn.TransformerDecoderLayer(M, HEADS, 24, **options))
    decoder_layer = DecoderLayer(config).double()
    decoder_layer.load_state_dict(decoder_layer_weights(theirs.state_dict()))
    expected = theirs(memory, x, tgt_mask=LATER)
    assert_equal(decoder_layer(memory, x, View(4, 4, rules=(CausalRule(),)), View(4, 5)), expected)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    "activation", ["relu", functional.gelu, partial(functional.gelu, approximate="tanh"), functional.silu]
)
@pytest.mark.parametrize("norm_first", [True, False])
def test_a_whole_transformer(norm_first, activation, bias):
    """With the norm after each stack that nn.Transformer always has."""
    theirs = drawn(
        nn.Transformer(
            M, HEADS, 2, 3, 24, activation=activation, norm_first=norm_first, bias=bias, batch_first=True,
            layer_norm_eps=1e-3,
        )
    )  # fmt: skip
    fields = module_fields(theirs)
    assert fields == fields | {
        "d_model": M, "encoder_layers": 2, "decoder_layers": 3, "heads": HEADS, "ffn_size": 24, "biases": bias,
        "layer_norm_eps": 1e-3, "dropout": 0.1,
    }  # fmt: skip
    config = TransformerConfig(**fields, source_vocab_size=8, target_vocab_size=8)
    ours = Transformer(config).double().eval()
    missing, unexpected = ours.load_state_dict(transformer_weights(theirs.state_dict()), strict=False)
    assert unexpected == []
    assert all(".embedding." in name or "output_projection" in name for name in missing)
    source, target = torch.tensor([[4, 5, 6, 7, 3], [4, 5, 3, 0, 0]]), torch.tensor([[2, 4, 5, 6], [2, 7, 7, 7]])
    expected = theirs(
        ours.encoder.embedding(source),
        ours.decoder.embedding(target),
        tgt_mask=LATER,
        src_key_padding_mask=PADDING,
        memory_key_padding_mask=PADDING,
    )
    assert_equal(ours(source, torch.tensor([5, 3]), target), ours.output_projection(expected))


def test_biases_that_are_missing_are_zero():
    state = nn.Transformer(M, HEADS, 1, 1, 24, bias=False).state_dict()
    weights = with_biases(transformer_weights(state), layer_config(biases=True))
    assert not any(weights[name].any() for name in weights if name.endswith("bias"))
    ours = Transformer(layer_config(encoder_layers=1, decoder_layers=1, norm="pre"))
    missing, _ = ours.load_state_dict(weights, strict=False)
    assert all(".embedding." in name or "output_projection" in name for name in missing)
    assert with_biases({}, layer_config(biases=False)) == {}


def transformer(**options: Any) -> nn.Transformer:
    return nn.Transformer(M, HEADS, 2, 1, 24, **{"norm_first": True, "batch_first": True, **options})


def changed(**tensors: torch.Tensor | None) -> dict[str, torch.Tensor]:
    state = {
        **transformer(norm_first=False).state_dict(),
        **{name.replace("__", "."): each for name, each in tensors.items()},
    }
    return {name: tensor for name, tensor in state.items() if tensor is not None}


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        (changed(encoder__layers__0__linear2__weight=None), "encoder.layers.0: the tensor linear2.weight is missing"),
        (
            changed(decoder__layers__0__self_attn__bias_k=torch.ones(1)),
            "decoder.layers.0.self_attn has bias_k (add_bias_kv=True), which is not supported",
        ),
        (
            changed(decoder__layers__0__multihead_attn__in_proj_weight=torch.ones(47, M)),
            "decoder.layers.0.multihead_attn.in_proj_weight is [47, 16], and queries, keys and values are a third",
        ),
        (changed(encoder__layers__5__norm1__weight=torch.ones(M)), "encoder has 3 layers that are not numbered from 0"),
        (changed(generator__weight=torch.ones(1)), "the tensor generator.weight has no place"),
        (changed(encoder__layers__1__norm9__weight=torch.ones(M)), "norm9.weight has no place"),
        ({}, "its encoder has 0 layers"),
    ],
)
def test_what_is_wrong_with_a_state_dict_is_one_sentence(state, sentence):
    with pytest.raises(ExportError) as raised:
        transformer_weights(state)
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("state", "heads", "sentence"),
    [
        (changed(), 3, "its model size is 16, which 3 heads do not divide"),
        (changed(), 0, "its model size is 16, which 0 heads do not divide"),
        (changed(encoder__norm__weight=None), HEADS, "only one of encoder.norm and decoder.norm is there"),
        (changed(encoder__layers__0__linear1__weight=torch.ones(3)), HEADS, "it should have 2 dimensions"),
    ],
)
def test_what_shapes_do_not_say(state, heads, sentence):
    with pytest.raises(ExportError) as raised:
        transformer_fields(state, heads=heads, norm_first=True)
    assert sentence in str(raised.value)


def test_a_final_norm_that_the_placement_does_not_imply():
    """Post-norm with the norm after each stack, and pre-norm without it."""
    without = {name: each for name, each in changed().items() if ".norm." not in name}
    for state, norm_first in ((changed(), False), (without, True)):
        fields = transformer_fields(state, heads=HEADS, norm_first=norm_first)
        assert fields["final_norm"] is not norm_first


class OwnLayer(nn.TransformerEncoderLayer):
    pass


def with_part(change: Any) -> nn.Transformer:
    made = transformer()
    change(made.encoder.layers)
    return made


@pytest.mark.parametrize(
    ("module", "sentence"),
    [
        (lambda: with_part(lambda layers: setattr(layers[1].self_attn, "num_heads", 4)), "its layers differ in heads"),
        (
            lambda: with_part(lambda layers: setattr(layers[1].self_attn, "add_zero_attn", True)),
            "encoder.layers.1.self_attn has add_zero_attn, which is not supported",
        ),
        (
            lambda: with_part(lambda layers: layers.__setitem__(0, OwnLayer(M, HEADS))),
            "encoder.layers.0 is of the class OwnLayer, and only an nn.TransformerEncoderLayer is read",
        ),
        # PyTorch's decoder layers fall back to relu when they are copied with an activation that is a module.
        (lambda: transformer(activation=nn.SiLU()), "its layers differ in heads, norm_first, activation"),
        (lambda: transformer(activation=torch.tanh), "encoder.layers.0: its activation is none of relu"),
        (lambda: nn.Transformer(M, HEADS, custom_encoder=nn.Identity(), custom_decoder=nn.Identity()), "no layers"),
    ],
)
def test_modules_that_are_not_supported(module, sentence):
    with pytest.raises(ExportError) as raised:
        module_fields(module())
    assert sentence in str(raised.value)
