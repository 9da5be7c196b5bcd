"""Sizes that make a model, and the variants that they may have."""

import json
import math
import re
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from helpers.architectures import ARCHITECTURES, VARIANTS
from helpers.refusals import refusal
from translane_export.model import Transformer, TransformerConfig
from translane_export.model.attention import MultiHeadAttention

MOST = "and at most [0-9,]+ are supported"  # of what no file holds


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("d_model", True),
        ("heads", 2.0),
        ("tie_embeddings", "three-way"),  # the vocabularies differ
        ("unk_id", 0),  # pad_id already
        ("bos_id", 13),  # outside the source vocabulary
        ("eos_id", 1),  # unk_id already
        ("decoder_start_id", 17),
        ("attention_scale", 0),
        ("attention_scale", math.nan),
        ("relative_buckets", 9),
        ("suppressed_ids", [5]),
        ("suppressed_ids", (5, 17)),
        ("suppressed_ids", (3,)),  # eos_id
        ("kv_heads", 3),  # of 2 heads
        ("value_size", 1_000_001),
    ],
)
def test_a_bad_value_is_refused_by_field_name(make_config, field, value):
    with pytest.raises(ValueError, match=f"^{field}: "):
        make_config(**{field: value})


@pytest.mark.parametrize(
    ("field", "values", "sentence"),
    [
        ("max_positions", {"max_positions": 131_072, "d_model": 2048}, MOST),
        ("max_positions", {"max_positions": 131_072, "positions": "rotary", "head_size": 2048}, MOST),
        ("relative_window", {"relative_window": 1000, "heads": 200, "head_size": 1}, MOST),
        ("relative_window", {"relative_window": 1000, "heads": 100, "head_size": 8, "relative_shared": False}, MOST),
        ("d_model", {"d_model": 15, "heads": 3}, "sinusoidal positions need an even number, not 15"),
        ("d_model", {"d_model": 16, "heads": 3}, "16 is not divisible by 3 heads; set head_size"),
        ("kv_heads", {"heads": 6, "d_model": 24, "kv_heads": 4}, "4 does not divide 6 heads"),
        ("head_size", {"positions": "rotary", "head_size": 7}, "rotary positions need an even number, not 7"),
        ("head_size", {"positions": "rotary", "d_model": 6}, "rotary positions need an even number, not 3"),
        ("relative_window", {"positions": "rotary", "relative_window": 2}, "choose one"),
        ("relative_max_distance", {"relative_buckets": 32, "relative_max_distance": 16}, "16 is not above half of 32"),
        ("proximal_init", {"proximal_init": True, "kv_heads": 1}, "where kv_heads are fewer than heads"),
        ("window_size", {"block_length": 3, "window_size": 4}, "choose one"),
        ("d_model", {"decoder_unit": "ssru", "d_model": 20}, "needs a multiple of 8, not 20"),
        ("positions", {"decoder_unit": "ssru", "positions": "alibi"}, "alibi are of self-attention"),
        ("relative_window", {"decoder_unit": "ssru", "relative_window": 2}, "is of self-attention"),
        ("window_size", {"decoder_unit": "ssru", "window_size": 4}, "is of self-attention"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_values_that_do_not_go_together_are_refused(make_config, field, values, sentence):
    assert re.match(f"{field}: .*{sentence}", refusal(ValueError, make_config, **values))


_FEW = st.integers(-1, 6)
_SWITCH = st.booleans()


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    values=st.fixed_dictionaries(
        {"heads": st.integers(1, 6), "d_model": st.integers(1, 24)},
        optional={
            "kv_heads": st.none() | _FEW,
            "head_size": st.none() | _FEW,
            "value_size": st.none() | _FEW,
            "positions": st.sampled_from(["sinusoidal", "learned", "rotary", "alibi", "none"]),
            "norm_kind": st.sampled_from(["layer", "rms", "batch"]),
            "attention_normalizer": st.sampled_from(["softmax", "softmax1"]),
            "attention_scale": _SWITCH | st.floats(),
            "attention_biases": st.none() | _SWITCH,
            "rotary_base": st.floats() | st.integers(-2, 3),
            "relative_window": _FEW,
            "relative_buckets": _FEW,
            "proximal_init": _SWITCH,
            "block_length": _FEW,
            "window_size": _FEW,
            "look_backward": _FEW,
            "look_forward": _FEW,
        },
    )
)
def test_any_values_make_a_model_or_are_refused_by_name(values):
    sizes: dict[str, Any] = {"encoder_layers": 1, "decoder_layers": 1, "ffn_size": 2, "max_positions": 8}
    try:
        config = TransformerConfig(source_vocab_size=5, target_vocab_size=6, **sizes, **values)
    except ValueError as refusal:
        named, _, _ = str(refusal).partition(":")
        if named in values or named == "head_size":  # head_size follows from others unless it is given
            return
        raise
    assert TransformerConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    with torch.device("meta"):
        attention = MultiHeadAttention.from_config(config, to_self=True)
    assert attention.q_proj.out_features == config.heads * config.head_dim
    assert attention.v_proj.out_features == config.key_value_heads * config.value_dim


# longer than every window, so that there is something to hide
SOURCE_LENGTHS, TARGET_LENGTHS = torch.tensor([13, 6, 1]), torch.tensor([5, 11, 3])
EXACT: dict[str, Any] = {"rtol": 1e-12, "atol": 1e-12}

EVERY = VARIANTS | ARCHITECTURES
every_variant = pytest.mark.parametrize("variant", EVERY.values(), ids=EVERY.keys())


def sentences(lengths: Tensor, vocabulary: int, first: int | None = None) -> Tensor:
    size = int(lengths.max())
    ids = torch.randint(4, vocabulary, (len(lengths), size))
    if first is not None:
        ids[:, 0] = first
    return ids.masked_fill(torch.arange(size) >= lengths[:, None], 0)


def batch(config: TransformerConfig) -> tuple[Tensor, Tensor, Tensor]:
    source = sentences(SOURCE_LENGTHS, config.source_vocab_size)
    return source, SOURCE_LENGTHS, sentences(TARGET_LENGTHS, config.target_vocab_size, config.start_id)


@every_variant
def test_neither_padding_nor_neighbours_change_a_sentence(make_model, variant):
    model = make_model(**variant)
    source, lengths, target = batch(model.config)
    logits = model(source, lengths, target)
    # longer padding, of anything
    wider = nn.functional.pad(source, (0, 4)).masked_fill(torch.arange(17) >= lengths[:, None], 9)
    longer = model(wider, lengths, nn.functional.pad(target, (0, 3)))
    for row, (source_size, target_size) in enumerate(zip(SOURCE_LENGTHS, TARGET_LENGTHS, strict=True)):
        own = slice(row, row + 1)
        alone = model(source[own, :source_size], lengths[own], target[own, :target_size])
        torch.testing.assert_close(logits[own, :target_size], alone, **EXACT)
        torch.testing.assert_close(longer[own, :target_size], alone, **EXACT)


@pytest.mark.slow
@every_variant
def test_gradients_are_those_of_finite_differences(make_model, variant):
    """All parameters at once, along random directions."""
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 8, "ffn_size": 6, "head_size": 4}
    model = make_model(**(sizes | variant | {"d_model": 8, "dropout": 0.0, "activation": "silu"})).train()
    source, target = torch.tensor([[4, 5, 6, 3], [7, 3, 0, 0]]), torch.tensor([[2, 4, 5], [2, 6, 0]])
    parameters = dict(model.named_parameters())
    statistics = {name: tensor.clone() for name, tensor in model.named_buffers()}

    def logits(*values: Tensor) -> Tensor:
        given = dict(zip(parameters, values, strict=True))
        copies = {name: tensor.clone() for name, tensor in statistics.items()}
        arguments = (source, torch.tensor([4, 2]), target)
        result: Tensor = torch.func.functional_call(model, given | copies, arguments)
        return result[target != 0]

    values = tuple(parameter.detach().requires_grad_() for parameter in parameters.values())
    assert torch.autograd.gradcheck(logits, values, fast_mode=True)
    used = torch.autograd.grad(logits(*values).square().sum(), values, allow_unused=True)
    assert [name for name, gradient in zip(parameters, used, strict=True) if gradient is None] == []


@every_variant
def test_training_in_bfloat16_has_numbers_everywhere(make_config, variant):
    model = Transformer(make_config(**variant)).train()
    source, lengths, target = batch(model.config)
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(source, lengths, target)
    logits.float().square().mean().backward()
    assert logits.isfinite().all()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
