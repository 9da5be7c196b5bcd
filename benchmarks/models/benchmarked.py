"""The models that are benchmarked, as each engine reads them: made once, and kept in a folder.

*base* is Marian's base size with random weights, *demo* the bundled model, *tiny* two layers on either side of 128
units with random weights.
"""

from __future__ import annotations

import io
import json
import random
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.places import DEMO
from translane_server.bundle.manifest import SCHEMA_VERSION

PRECISIONS = ("fp32", "int8")
ON_CUDA = ("fp16",)
COMPUTE_TYPES = {"fp32": "float32", "int8": "int8", "fp16": "float16"}  # CTranslate2's names
NAMES = ("base", "demo", "tiny")
RANDOM = ("base", "tiny")  # have random weights, which end no sentence
# As opus-mt-zh-en.
BASE: dict[str, Any] = {
    **{"d_model": 512, "encoder_layers": 6, "decoder_layers": 6, "encoder_attention_heads": 8},
    **{"decoder_attention_heads": 8, "encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048, "vocab_size": 65001},
    **{"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 65000, "decoder_start_token_id": 65000},
    **{"max_position_embeddings": 512, "activation_function": "swish", "scale_embedding": True},
}
TINY: dict[str, Any] = {
    **{"source_vocab_size": 2_841, "target_vocab_size": 2_841, "d_model": 128},
    **{"encoder_layers": 2, "decoder_layers": 2, "heads": 4, "ffn_size": 512},
}
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_SPREAD = 0.02  # of biases and of the weights of norms
_SAMPLES = 24  # that int8 is calibrated with
_CHECKED = 32  # tokens of a translation that the exporter verifies the tiny model with
_NEVER = -100.0  # is added to the logit of the sentence's end


@dataclass(frozen=True)
class BenchmarkedModel:
    """A model as each engine reads it: the folders of Translane's bundle, and of what CTranslate2's converter makes."""

    bundle: Path
    converted: Path


class Unavailable(Exception):  # noqa: N818 - a reason, not an error
    """A model that cannot be had, and why."""


def prepare(name: str, precision: str, folder: Path) -> BenchmarkedModel:
    """The model in this precision, made in `folder` where it is not there yet.

    Raises:
        Unavailable: the exporter has no such precision, or CTranslate2 is not installed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    return BenchmarkedModel(own_bundle(name, precision, folder), convert(name, precision, folder))


def convert(name: str, precision: str, folder: Path) -> Path:
    """The model converted for CTranslate2.

    Raises:
        Unavailable: CTranslate2 is not installed.
    """
    output = folder / f"{name}-{precision}-ctranslate2"
    if (output / "model.bin").is_file():
        return output
    try:
        import ctranslate2  # noqa: F401
    except ImportError:
        raise Unavailable("ctranslate2 is not installed (pip install --group bench)") from None
    from benchmarks.models.ctranslate2_conversion import convert_bundle, convert_marian

    print(f"converting {output.name} …", flush=True)
    if name == "base":
        convert_marian(base_folder(folder), output, COMPUTE_TYPES[precision])
    else:  # from the fp32 bundle of the tiny model, because int8 weights are rounded twice otherwise
        source = DEMO if name == "demo" else own_bundle(name, "fp32", folder)
        convert_bundle(source, output, COMPUTE_TYPES[precision])
    return output


def base_folder(folder: Path) -> Path:
    """The random Marian as a Hugging Face folder, with a tokenizer of numbered pieces."""
    output = folder / "base-huggingface"
    if (output / "vocab.json").is_file():
        return output
    import torch

    from benchmarks.models.ctranslate2_conversion import tokens
    from helpers import hugging_face

    print(f"drawing {output.name} …", flush=True)
    model = hugging_face.draw(hugging_face.Model("Marian", BASE, {"bad_words_ids": [[65000]]}, ends=3.0, spread=0.03))
    config = model.config
    with torch.no_grad():  # as Marian's: CTranslate2 starts from zero whatever is there
        model.get_input_embeddings().weight[config.pad_token_id] = 0
    model.save_pretrained(output)
    specials = {config.eos_token_id: "</s>", 1: "<unk>", config.pad_token_id: "<pad>"}
    vocabulary = {token: number for number, token in enumerate(tokens(config.vocab_size, specials))}
    for side in ("source", "target"):
        (output / f"{side}.spm").write_bytes(hugging_face._spm())
    (output / "tokenizer_config.json").write_text(json.dumps({"source_lang": "en", "target_lang": "de"}))
    (output / "vocab.json").write_text(json.dumps(vocabulary))
    return output


def own_bundle(name: str, precision: str, folder: Path) -> Path:
    """The folder of Translane's bundle of a model, made in `folder` where it is not there yet.

    Raises:
        Unavailable: the exporter has no such precision.
    """
    from translane_export.core.errors import ExportError

    if name == "demo" and precision == json.loads((DEMO / "manifest.json").read_text(encoding="utf-8"))["precision"]:
        return DEMO
    output = folder / f"{name}-{precision}-bundle"
    if (output / "manifest.json").is_file() and _is_current(output):
        return output
    shutil.rmtree(output, ignore_errors=True)
    print(f"exporting {output.name} …", flush=True)
    try:
        _export(name, precision, folder, output)
    except (ExportError, ValueError) as error:
        shutil.rmtree(output, ignore_errors=True)
        raise Unavailable(f"{name} in {precision} cannot be exported: {error}") from None
    return output


def _is_current(bundle: Path) -> bool:
    """Whether the exporter writes bundles of the same version; CUDA refuses older versions."""
    manifest = json.loads((bundle / "manifest.json").read_text(encoding="utf-8"))
    return bool(manifest["schema_version"] == SCHEMA_VERSION)


def _export(name: str, precision: str, folder: Path, output: Path) -> None:
    if name == "base":
        from helpers import hugging_face

        hugging_face.export(base_folder(folder), output, precision=precision)
        return
    if name == "tiny":
        from translane_export.model import TransformerConfig

        export_random(TransformerConfig(**TINY), output, precision=precision, default_max_length=_CHECKED)
        return
    from translane_export.bundle_writer import export_checkpoint
    from translane_export.core.settings import ExportSettings

    export_checkpoint(ExportSettings(checkpoint=DEMO, output=output, precision=precision))


def export_random(config: Any, output: Path, **settings: Any) -> None:
    """Export a model of random weights that ends no sentence, and whose pieces are letters.

    `config` is its `TransformerConfig`, and `settings` are further `ExportSettings`.
    """
    import torch

    from translane_export.bundle_writer import export_checkpoint
    from translane_export.core.checkpoint import save_checkpoint
    from translane_export.core.settings import ExportSettings
    from translane_export.model import Transformer

    checkpoint, vocabulary = output.with_suffix(".checkpoint"), output.with_suffix(".spm")
    shutil.rmtree(checkpoint, ignore_errors=True)
    output.parent.mkdir(parents=True, exist_ok=True)
    vocabulary.write_bytes(_pieces())
    draw = random.Random(0)
    torch.manual_seed(0)
    model = Transformer(config)
    with torch.no_grad():
        for weights in model.parameters():  # as trained ones: the exporter keeps equal tensors once
            if weights.ndim == 1:
                weights.add_(torch.randn_like(weights) * _SPREAD)
        model.output_projection.bias[config.eos_id] += _NEVER
    save_checkpoint(
        checkpoint,
        config=config,
        state_dict=model.state_dict(),
        source_tokenizer=vocabulary,
        target_tokenizer=vocabulary,
        source_language="en",
        target_language="en",
        samples=tuple("".join(draw.choices(_LETTERS, k=draw.randint(4, 24))) for _ in range(_SAMPLES)),
        metadata={},
    )
    try:
        export_checkpoint(ExportSettings(checkpoint=checkpoint, output=output, **settings))
    finally:
        shutil.rmtree(checkpoint, ignore_errors=True)
        vocabulary.unlink()


def _pieces() -> bytes:
    """A SentencePiece model of the letters: most ids of the model have no piece, and no benchmark asks for one."""
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([f"{_LETTERS} {_LETTERS.upper()}"]),
        model_writer=model,
        model_type="char",
        vocab_size=1000,
        hard_vocab_limit=False,
        pad_id=0,
        unk_id=1,
        bos_id=2,
        eos_id=3,
        minloglevel=2,
    )
    return model.getvalue()
