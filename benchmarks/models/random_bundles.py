"""Bundles of random weights in the sizes that steps are profiled at, exported once and kept."""

from __future__ import annotations

import json
import random
import shutil
import string
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.models.benchmarked import own_bundle
from benchmarks.models.letters import characters
from translane_export.bundle_writer import export_checkpoint
from translane_export.checkpoint import save_checkpoint
from translane_export.model import PRESETS, Transformer, TransformerConfig
from translane_export.settings import ExportSettings
from translane_server.manifest import SCHEMA_VERSION

SIZES: dict[str, dict[str, Any]] = {
    "base": {**PRESETS["base"], "source_vocab_size": 32_000, "target_vocab_size": 32_000},
    "tiny": {
        "source_vocab_size": 2_841,
        "target_vocab_size": 2_841,
        "d_model": 128,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "heads": 4,
        "ffn_size": 512,
    },
}
_LONGEST = 64  # tokens of a source and of a translation
_SPREAD = 0.02  # of biases and of the weights of norms
_SAMPLES = 24  # that int8 is calibrated with


def profiled_bundle(name: str, folder: Path) -> Path:
    """The folder of a bundle such as "base-int8", made in `folder` where it is not there yet.

    Raises:
        Unavailable: the demo model cannot be exported in this precision.
    """
    model, _, precision = name.partition("-")
    folder.mkdir(parents=True, exist_ok=True)
    if model == "demo":
        return own_bundle(model, precision, folder)
    output = folder / f"random-{name}-bundle"
    if not _is_current(output):
        print(f"exporting {output.name} …", flush=True)
        shutil.rmtree(output, ignore_errors=True)
        export_random(
            TransformerConfig(**SIZES[model]),
            output,
            samples=random_words(),
            precision=precision,
            max_source_tokens=_LONGEST,
            max_target_tokens=_LONGEST,
            default_max_length=_LONGEST,
        )
    return output


def random_words() -> list[str]:
    """Words of random letters to verify with, and to calibrate int8 with."""
    draw = random.Random(0)
    return ["".join(draw.choices(string.ascii_letters, k=draw.randint(4, 24))) for _ in range(_SAMPLES)]


def _is_current(bundle: Path) -> bool:
    path = bundle / "manifest.json"
    return path.is_file() and json.loads(path.read_text(encoding="utf-8"))["schema_version"] >= SCHEMA_VERSION


def export_random(
    config: TransformerConfig, output: Path, *, samples: Sequence[str] = (), ends: float = 4.0, **settings: Any
) -> None:
    """Export a model of random weights, whose pieces are characters.

    Args:
        config: the model.
        output: folder of the new bundle.
        samples: sentences to verify with, and to calibrate int8 with.
        ends: is added to the logit of the sentence's end. Sentences end soon where it is large.
        settings: further `ExportSettings`.
    """
    checkpoint, vocabulary = output.with_suffix(".checkpoint"), output.with_suffix(".spm")
    shutil.rmtree(checkpoint, ignore_errors=True)
    output.parent.mkdir(parents=True, exist_ok=True)
    vocabulary.write_bytes(characters())
    torch.manual_seed(0)
    model = Transformer(config)
    with torch.no_grad():
        for weights in model.parameters():  # as trained ones: the exporter keeps equal tensors once
            if weights.ndim == 1:
                weights.add_(torch.randn_like(weights) * _SPREAD)
        model.output_projection.bias[config.eos_id] += ends
    save_checkpoint(
        checkpoint,
        config=config,
        state_dict=model.state_dict(),
        source_tokenizer=vocabulary,
        target_tokenizer=vocabulary,
        source_language="en",
        target_language="en",
        samples=tuple(samples),
        metadata={},
    )
    try:
        export_checkpoint(ExportSettings(checkpoint=checkpoint, output=output, **settings))
    finally:
        shutil.rmtree(checkpoint, ignore_errors=True)
        vocabulary.unlink()
