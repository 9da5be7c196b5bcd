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
    config = make_config(norm="pre", head_size=5, tie_embeddings="none", suppressed_ids=(4, 0), logit_scale=0.5)
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
        ("eos_id", 1),  # unk_id already
        ("decoder_start_id", 17),
        ("decoder_start_id", True),
        ("embedding_norm", 1),
        ("norm_kind", "batch"),
        ("biases", None),
        ("gated", "yes"),
        ("attention_scale", 0.125),
        ("relative_buckets", 2),
        ("relative_buckets", 9),
        ("relative_buckets", -8),
        ("relative_max_distance", 0),
        ("logit_scale", 0),
        ("logit_scale", float("inf")),
        ("logit_scale", "0.5"),
        ("suppressed_ids", [5]),
        ("suppressed_ids", (5, 17)),
        ("suppressed_ids", (True,)),
        ("suppressed_ids", (3,)),  # eos_id
    ],
)
def test_a_bad_value_is_refused_by_field_name(make_config, field, value):
    with pytest.raises(ValueError, match=f"^{field}: "):
        make_config(**{field: value})


def test_distances_that_share_a_bucket_lie_beyond_those_that_do_not(make_config):
    with pytest.raises(ValueError, match=r"^relative_max_distance: 16 is not above half of 32 relative_buckets"):
        make_config(relative_buckets=32, relative_max_distance=16)
    assert make_config(relative_buckets=0, relative_max_distance=1).relative_buckets == 0


def test_published_models_begin_with_other_special_ids(make_config):
    assert make_config().start_id == 2
    marian = make_config(bos_id=3, decoder_start_id=0)
    assert (marian.start_id, marian.bos_id, marian.eos_id, marian.pad_id) == (0, 3, 3, 0)


def test_a_config_of_an_earlier_release_is_today_s_default(make_config):
    config = make_config()
    added = {
        "decoder_start_id",
        "embedding_norm",
        "norm_kind",
        "biases",
        "gated",
        "relative_buckets",
        "relative_max_distance",
        "attention_scale",
        "logit_scale",
        "suppressed_ids",
    }
    assert TransformerConfig.from_dict({k: v for k, v in config.to_dict().items() if k not in added}) == config


def test_odd_d_model_is_refused_for_sinusoids_alone(make_config):
    with pytest.raises(ValueError, match=r"^d_model: sinusoidal"):
        make_config(d_model=15, heads=3)
    assert make_config(d_model=15, heads=3, positions="learned").head_dim == 5
