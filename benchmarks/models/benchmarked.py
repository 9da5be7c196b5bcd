"""The models that are benchmarked, as each engine reads them: made once, and kept in a folder.

Tokens are ids in Translane and strings in CTranslate2: `tokens` names the string of each id.

*base* is Marian's base size with random weights, *demo* the bundled model, *tiny* a Marian of two layers on either side
of 128 units, with random weights.
"""

from __future__ import annotations

import json
import math
import shutil
import string
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.places import DEMO
from translane_server.bundle.bundle import read_manifest
from translane_server.core.errors import BundleError

PRECISIONS = ("fp32", "int8")
ON_CUDA = ("fp16",)
COMPUTE_TYPES = {"fp32": "float32", "int8": "int8", "fp16": "float16"}  # CTranslate2's names
NAMES = ("base", "demo", "tiny")
RANDOM = ("base", "tiny")  # have random weights, which end no sentence
_CHECKED = 32  # tokens of a translation that the exporter checks a random model with
# The random models are Marian's, base as opus-mt-zh-en: width, layers on either side, heads, pieces and activation, and
# what is added to the logit of the sentence's end.
SIZES = {"base": (512, 6, 8, 65_001, "swish", 3.0), "tiny": (128, 2, 4, 2_841, "relu", -100.0)}


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
        from ctranslate2.converters import TransformersConverter
    except ImportError:
        raise Unavailable("ctranslate2 is not installed (pip install --group bench)") from None
    print(f"converting {output.name} …", flush=True)
    converter = converter_of_demo() if name == "demo" else TransformersConverter(str(random_folder(name, folder)))
    converter.convert(str(output), quantization=COMPUTE_TYPES[precision], force=True)
    return output


def random_folder(name: str, folder: Path) -> Path:
    """A random Marian as a Hugging Face folder, with a tokenizer of letters and numbered pieces."""
    output = folder / f"{name}-huggingface"
    if (output / "vocab.json").is_file():
        return output
    import torch

    from helpers import hugging_face

    print(f"drawing {output.name} …", flush=True)
    width, layers, heads, pieces, activation, ends = SIZES[name]
    config: dict[str, Any] = {"d_model": width, "vocab_size": pieces, "activation_function": activation}
    for side in ("encoder", "decoder"):
        config |= {f"{side}_layers": layers, f"{side}_attention_heads": heads, f"{side}_ffn_dim": 4 * width}
    config |= {"bos_token_id": 0, "eos_token_id": 0, "max_position_embeddings": 512, "scale_embedding": True}
    config |= {"pad_token_id": (pad := pieces - 1), "decoder_start_token_id": pad}
    model = hugging_face.draw(hugging_face.Model("Marian", config, {"bad_words_ids": [[pad]]}, ends=ends, spread=0.03))
    with torch.no_grad():  # as Marian's: CTranslate2 starts from zero whatever is there
        model.get_input_embeddings().weight[pad] = 0
    model.save_pretrained(output)
    special = dict(enumerate(["</s>", "<unk>", "▁", *string.ascii_lowercase])) | {pad: "<pad>"}
    vocabulary = {token: number for number, token in enumerate(tokens(pieces, special))}
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
    if name == "demo" and precision == read_manifest(DEMO).precision:
        return DEMO
    output = folder / f"{name}-{precision}-bundle"
    with suppress(BundleError):  # there is none, or one of another version
        read_manifest(output)
        return output
    from helpers import hugging_face
    from translane_export.bundle_writer import export_checkpoint
    from translane_export.core.errors import ExportError
    from translane_export.core.settings import ExportSettings

    shutil.rmtree(output, ignore_errors=True)
    print(f"exporting {output.name} …", flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        if name == "demo":
            export_checkpoint(ExportSettings(checkpoint=DEMO, output=output, precision=precision))
        else:
            hugging_face.export(random_folder(name, folder), output, precision=precision, default_max_length=_CHECKED)
    except (ExportError, ValueError) as error:
        shutil.rmtree(output, ignore_errors=True)
        raise Unavailable(f"{name} in {precision} cannot be exported: {error}") from None
    return output


def tokens(size: int, specials: dict[int, str]) -> list[str]:
    """The strings of `size` ids: `specials` by their names, the others by their numbers."""
    return [specials.get(number, f"t{number}") for number in range(size)]


def converter_of_demo() -> Any:
    """CTranslate2's converter of the bundled model, read back as the checkpoint that it was exported from."""
    from ctranslate2.converters.converter import Converter
    from ctranslate2.specs import common_spec, transformer_spec

    from translane_export.model.positions import sinusoid_table
    from translane_export.sources.bundle import read_bundle

    checkpoint = read_bundle(DEMO)
    config, state = checkpoint.config, checkpoint.state_dict

    def numbers(name: str) -> Any:
        return state[name].detach().float().contiguous().numpy()

    def linear(place: Any, *names: str) -> None:
        """Join several projections into one, whose outputs are theirs, one after the other."""
        place.weight = np.concatenate([numbers(f"{name}.weight") for name in names])
        place.bias = np.concatenate([numbers(f"{name}.bias") for name in names])

    def norm(place: Any, name: str) -> None:
        place.gamma, place.beta = numbers(f"{name}.weight"), numbers(f"{name}.bias")

    def fill_layer(layer: Any, name: str) -> None:
        packed, projected = layer.self_attention.linear
        linear(packed, *(f"{name}.self_attention.{part}" for part in ("q_proj", "k_proj", "v_proj")))
        linear(projected, f"{name}.self_attention.out_proj")
        norm(layer.self_attention.layer_norm, f"{name}.self_attention_residual.norm")
        if hasattr(layer, "attention"):
            queries, keys_values, projected = layer.attention.linear
            linear(queries, f"{name}.cross_attention.q_proj")
            linear(keys_values, *(f"{name}.cross_attention.{part}" for part in ("k_proj", "v_proj")))
            linear(projected, f"{name}.cross_attention.out_proj")
            norm(layer.attention.layer_norm, f"{name}.cross_attention_residual.norm")
        linear(layer.ffn.linear_0, f"{name}.feed_forward.up_proj")
        linear(layer.ffn.linear_1, f"{name}.feed_forward.down_proj")
        norm(layer.ffn.layer_norm, f"{name}.feed_forward_residual.norm")

    sizes = (config.encoder_layers, config.decoder_layers), config.heads
    relu = common_spec.Activation.RELU
    specification = transformer_spec.TransformerSpec.from_config(*sizes, pre_norm=True, activation=relu)
    for side, stack in (("encoder", specification.encoder), ("decoder", specification.decoder)):
        vectors = stack.embeddings[0] if side == "encoder" else stack.embeddings
        vectors.weight = numbers(f"{side}.embedding.tokens.weight")
        stack.scale_embeddings = math.sqrt(config.d_model)
        stack.position_encodings.encodings = sinusoid_table(config.max_positions, config.d_model).numpy()
        for number, layer in enumerate(stack.layer):
            fill_layer(layer, f"{side}.layers.{number}")
        norm(stack.layer_norm, f"{side}.final_norm")
    linear(specification.decoder.projection, "output_projection")
    specials = {config.unk_id: "<unk>", config.start_id: "<s>", config.eos_id: "</s>"}
    specification.register_source_vocabulary(tokens(config.source_vocab_size, specials))
    specification.register_target_vocabulary(tokens(config.target_vocab_size, specials))
    settings = specification.config
    settings.unk_token, settings.bos_token, settings.eos_token = specials.values()
    settings.decoder_start_token, settings.layer_norm_epsilon = "<s>", config.layer_norm_eps

    class Demo(Converter):  # type: ignore[misc]
        def _load(self) -> Any:
            return specification

    return Demo()
