from __future__ import annotations

import dataclasses
import json

import pytest

from translane_export.model import PRESETS, TransformerConfig


def test_the_defaults_are_the_papers_base_model():
    config = TransformerConfig(source_vocab_size=100, target_vocab_size=100)
    assert config == TransformerConfig(source_vocab_size=100, target_vocab_size=100, **PRESETS["base"])
    assert (config.head_dim, config.norm, config.activation) == (64, "post", "relu")


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_are_valid(preset):
    config = TransformerConfig(source_vocab_size=8000, target_vocab_size=8000, **PRESETS[preset])
    assert config.head_dim % 8 == 0


def test_head_size_overrides_the_derived_one(make_config):
    assert make_config(d_model=16, heads=2).head_dim == 8
    assert make_config(d_model=16, heads=2, head_size=5).head_dim == 5
    assert make_config(d_model=16, heads=3, head_size=5).head_dim == 5


def test_a_config_survives_json(make_config):
    config = make_config(norm="pre", head_size=5, tie_embeddings="none")
    assert TransformerConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_unknown_and_missing_keys_are_named(make_config):
    values = make_config().to_dict()
    with pytest.raises(ValueError, match="unknown Transformer settings: depth, layers"):
        TransformerConfig.from_dict(values | {"layers": 6, "depth": 6})
    del values["target_vocab_size"]
    with pytest.raises(ValueError, match="missing Transformer settings: target_vocab_size"):
        TransformerConfig.from_dict(values)


def test_a_config_is_frozen(make_config):
    with pytest.raises(dataclasses.FrozenInstanceError):
        make_config().d_model = 8


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("source_vocab_size", 0),
        ("target_vocab_size", "17"),
        ("d_model", 15),
        ("d_model", True),
        ("encoder_layers", 0),
        ("decoder_layers", -1),
        ("heads", 2.0),
        ("head_size", 0),
        ("ffn_size", None),
        ("activation", "swish"),
        ("norm", "sandwich"),
        ("positions", "rotary"),
        ("max_positions", 0),
        ("scale_embeddings", "yes"),
        ("tie_embeddings", "three-way"),  # the vocabularies differ
        ("tie_embeddings", None),
        ("dropout", 1.0),
        ("attention_dropout", -0.1),
        ("activation_dropout", "0.1"),
        ("layer_norm_eps", 0.0),
        ("pad_id", -1),
        ("unk_id", 0),  # pad_id already
        ("bos_id", 13),  # outside the source vocabulary
        ("eos_id", None),
    ],
)
def test_a_bad_value_is_refused_by_field_name(make_config, field, value):
    with pytest.raises(ValueError, match=f"^{field}: "):
        make_config(**{field: value})


def test_odd_d_model_is_refused_for_sinusoids_alone(make_config):
    with pytest.raises(ValueError, match=r"^d_model: sinusoidal"):
        make_config(d_model=15, heads=3)
    assert make_config(d_model=15, heads=3, positions="learned").head_dim == 5
