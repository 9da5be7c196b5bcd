"""Every variant of attention from end to end: trained by the command, exported, served; compared with PyTorch."""

from typing import Any

import pytest

from helpers.commands import export, train
from helpers.real_server import AS_THEY_ARE, serving_bundle
from helpers.tiny_corpus import PAIRS, write_pairs
from translane.v1 import translation_pb2 as pb
from translane_export.checkpoint import load_checkpoint
from translane_export.model import Transformer
from translane_export.model.greedy import greedy_decode
from translane_server.bundle.bundle import load_bundle
from translane_server.text.tokenizer import load_tokenizer

pytestmark = pytest.mark.slow

MAX_LENGTH = 12
TEXTS = [source for source, _ in PAIRS[::7]] + [PAIRS[0][0] * 3, PAIRS[5][0] * 2, "猫"]
# Together they set every flag of attention, and every kind of norm.
TOGETHER: dict[str, dict[str, Any]] = {
    "relative vectors, batch norm": {
        "relative_window": 2,
        "relative_shared": False,
        "relative_clipped": False,
        "norm_kind": "batch",
        "norm": "pre",
        "embedding_norm": True,
        "window_size": 4,
        "look_backward": 2,
        "look_forward": 0,
    },
    "rotary, grouped queries, RMS norm": {
        "positions": "rotary",
        "rotary_base": 500.0,
        "rotary_interleaved": True,
        "kv_heads": 2,
        "window_size": 3,
        "exact_window": True,
        "norm_kind": "rms",
        "gated": True,
        "activation": "silu",
    },
    "ALiBi, proximal, softmax1": {
        "positions": "alibi",
        "proximal_bias": True,
        "proximal_init": True,
        "block_length": 3,
        "attention_normalizer": "softmax1",
        "attention_biases": False,
    },
    "recurrent unit, batch norm": {"decoder_unit": "ssru", "norm_kind": "batch", "positions": "none"},
    "T5's biases, sizes of no power of two": {
        "positions": "none",
        "relative_buckets": 8,
        "relative_max_distance": 12,
        "biases": False,
        "attention_biases": True,
        "head_size": 12,
        "value_size": 9,
    },
}


def flags(values):
    """Flags of the command: where {"a_switch": False} is --no-a-switch, others are --a-number=1."""
    given = []
    for name, value in values.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            given.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            given.append(f"--{flag}={value}")
    return given


def train_tiny(folder, variant):
    """Train a variant by the command; return its checkpoint's folder."""
    values: dict[str, Any] = {
        "train": write_pairs(folder / "train.tsv", 300, 1),
        "valid": write_pairs(folder / "valid.tsv", 12, 2),
        "output": folder / "run",
        "source_language": "zh",
        "target_language": "en",
        "source_vocabulary_size": 26,
        "target_vocabulary_size": 30,
        "preset": "tiny",
        "d_model": 32,
        "heads": 4,
        "ffn_size": 64,
        "encoder_layers": 1,
        "max_positions": 32,
        "max_tokens": 256,
        "learning_rate": 0.01,
        "warmup_steps": 10,
        "max_steps": 40,
        "valid_every": 40,
        "average": 1,
        "threads": 1,
        "device": "cpu",
        "precision": "fp32",
    }
    assert train(flags(values | variant)) == 0
    return folder / "run" / "best"


def read_model(folder):
    checkpoint = load_checkpoint(folder)
    model = Transformer(checkpoint.config)
    model.load_state_dict(checkpoint.state_dict)
    return model.eval()


@pytest.mark.parametrize("name", TOGETHER)
async def test_a_served_variant_translates_as_pytorch_does(tmp_path, name):
    variant = TOGETHER[name]
    checkpoint = train_tiny(tmp_path, variant)
    model = read_model(checkpoint)
    assert {key: getattr(model.config, key) for key in variant} == variant
    bundle_folder = tmp_path / "bundle"
    assert export([str(checkpoint), f"--output={bundle_folder}", "--threads=1"], {}) == 0
    bundle = load_bundle(bundle_folder)
    tokenizer = load_tokenizer(bundle)
    expected = greedy_decode(model, tokenizer.encode(TEXTS), MAX_LENGTH, complete=True)
    async with serving_bundle(bundle, max_batch_size=8) as running:
        options = pb.DecodingOptions(max_length=MAX_LENGTH, return_tokens=True, **AS_THEY_ARE)
        translations = (await running.stub.Translate(pb.TranslateRequest(texts=TEXTS, options=options))).translations
    for translation, ids in zip(translations, expected, strict=True):
        (hypothesis,) = translation.hypotheses
        ends = hypothesis.finish_reason == pb.FINISH_REASON_END_OF_SENTENCE
        assert list(hypothesis.tokens) == [*tokenizer.target_pieces(ids), *["</s>"] * ends]
        assert hypothesis.text == tokenizer.decode([ids])[0]
    assert len({translation.hypotheses[0].text for translation in translations}) > 1
