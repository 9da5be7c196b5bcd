"""Checkpoints and bundles of random weights, made in seconds.

A bundle with given settings is exported once for a test session. Each caller gets its own copy.
"""

import shutil
import tempfile
from pathlib import Path
from typing import Any

import sentencepiece
import torch

from helpers.decomposition import no_decomposition
from helpers.store import stored
from helpers.vocabularies import vocabulary
from translane_export.bundle_writer import export_checkpoint
from translane_export.core.checkpoint import load_checkpoint, save_checkpoint
from translane_export.core.settings import ExportSettings
from translane_export.model import Transformer, TransformerConfig
from translane_server.text.stand_ins import STAND_INS

SOURCES = (
    "我有一只猫。",
    "你好！",
    "今天天气很好，我们去公园吧。",
    "他在看书。",
    "她喜欢喝茶，不喜欢喝咖啡。",
    "请问，火车站在哪里？",
    "好。",
    "这本书很有意思，你应该看一看。",
    "汤姆昨天买了一辆新车。",
    "我不知道他为什么没有来。",
)
TARGETS = (
    "I have a cat.",
    "Hello!",
    "The weather is nice today, let's go to the park.",
    "He is reading a book.",
    "She likes tea and does not like coffee.",
    "Excuse me, where is the railway station?",
    "Good.",
    "This book is very interesting; you should read it.",
    "Tom bought a new car yesterday.",
    "I don't know why he did not come.",
)
SIZES: dict[str, Any] = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "heads": 2,
    "ffn_size": 64,
    "max_positions": 64,
    "tie_embeddings": "none",  # tied random weights repeat the token they are fed
}

# Sizes of a model without a tokenizer, for tests that look only at numbers.
SMALL_SIZES: dict[str, Any] = {
    "source_vocab_size": 30,
    "target_vocab_size": 30,
    "d_model": 16,
    "ffn_size": 24,
    "heads": 2,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "max_positions": 8,
    "tie_embeddings": "none",
}


def random_checkpoint(
    folder: Path,
    *,
    seed: int = 0,
    eos_bias: float = 0.0,
    joint: bool = False,
    weight_scale: float = 1.0,
    stand_ins: bool = False,
    **config: Any,
) -> Path:
    """Write a checkpoint of random weights to `folder`; `config` overrides `SIZES` and `TransformerConfig`'s defaults.

    `eos_bias` is added to the end-of-sentence logit, because random weights alone rarely end a sentence. `joint` makes
    one vocabulary for both sides. Every matrix is multiplied by `weight_scale`. The vocabularies may have `stand_ins`.
    """
    texts = ((*SOURCES, *TARGETS),) * 2 if joint else (SOURCES, TARGETS)
    with tempfile.TemporaryDirectory() as scratch:
        vocabularies = [
            _train_vocabulary(Path(scratch) / f"{side}.spm", text, STAND_INS if stand_ins else ())
            for side, text in enumerate(texts)
        ]
        sizes = [sentencepiece.SentencePieceProcessor(model_file=str(path)).get_piece_size() for path in vocabularies]
        values = {"source_vocab_size": sizes[0], "target_vocab_size": sizes[1], **SIZES, **config}
        model = random_model(TransformerConfig(**values), seed)
        with torch.no_grad():
            if eos_bias:
                model.output_projection.bias[model.config.eos_id] += eos_bias
            for parameter in model.parameters():
                if parameter.ndim > 1:
                    parameter.mul_(weight_scale)
        save_checkpoint(
            folder,
            config=model.config,
            state_dict=model.state_dict(),
            source_tokenizer=vocabularies[0],
            target_tokenizer=vocabularies[1],
            source_language="zh",
            target_language="en",
            samples=SOURCES,
            metadata={"data_licence": "CC0-1.0", "training_pairs": len(SOURCES), "valid_bleu": 0.0},
        )
    return folder


def random_bundle(folder: Path, *, export: dict[str, Any] | None = None, **checkpoint: Any) -> Path:
    """Write a bundle of random weights to `folder`; `export` has settings of the exporter; see `random_checkpoint`."""
    return Path(shutil.copytree(stored_bundle(export or {}, checkpoint), folder))


def bundle_model(**checkpoint: Any) -> Transformer:
    """Return the PyTorch model behind `random_bundle(…, **checkpoint)`."""
    read = load_checkpoint(_stored_checkpoint(checkpoint))
    model = Transformer(read.config)
    model.load_state_dict(read.state_dict)
    return model.eval()


def random_model(config: TransformerConfig, seed: int = 0) -> Transformer:
    """Return a Transformer with random parameters, including the parameters that usually start at 0 or 1."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Transformer(config)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim == 1:
                    parameter.add_(torch.randn_like(parameter) * 0.1)
            for name, buffer in model.named_buffers():
                if name.endswith("running_mean"):
                    buffer.normal_(std=0.5)
                elif name.endswith("running_var"):
                    buffer.uniform_(0.5, 2.0)
    return model.eval()


def _stored_checkpoint(checkpoint: dict[str, Any]) -> Path:
    key = ("checkpoint", sorted({**SIZES, **checkpoint}.items()))
    return stored(key, lambda folder: random_checkpoint(folder / "checkpoint", **checkpoint)) / "checkpoint"


def stored_bundle(export: dict[str, Any], checkpoint: dict[str, Any]) -> Path:
    """Return what `random_bundle` copies, which must not be written to."""

    def make(folder: Path) -> None:
        source = _stored_checkpoint(checkpoint)
        with no_decomposition():
            export_checkpoint(ExportSettings(checkpoint=source, output=folder, threads=1, **export))

    values = {name: value.read_bytes() if isinstance(value, Path) else value for name, value in export.items()}
    key = ("bundle", sorted({"precision": "fp32", **values}.items()), sorted({**SIZES, **checkpoint}.items()))
    return stored(key, make)


def _train_vocabulary(path: Path, sentences: tuple[str, ...], symbols: tuple[str, ...]) -> Path:
    ids = {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3, "user_defined_symbols": list(symbols)}
    as_it_is = {"model_type": "char", "character_coverage": 1.0, "normalization_rule_name": "identity"}
    path.write_bytes(vocabulary(sentences, 1000, **as_it_is, **ids))
    return path
