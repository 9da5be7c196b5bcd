"""Conversions of benchmarked models for CTranslate2, which is imported where it is used.

Tokens are ids in Translane and strings in CTranslate2: `tokens` names the string of each id, in both conversions.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

# Settings of attention that CTranslate2's Transformer has only as they are by default.
_ATTENTION = (
    "kv_heads",
    "value_size",
    "attention_biases",
    "attention_normalizer",
    "relative_window",
    "proximal_bias",
    "block_length",
    "window_size",
    "decoder_unit",
)
END, UNKNOWN, START = "</s>", "<unk>", "<s>"
_ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "gelu_tanh": "GELUTanh", "silu": "SWISH"}


def tokens(size: int, specials: dict[int, str]) -> list[str]:
    """The strings of `size` ids: `specials` by their names, the others by their numbers."""
    return [specials.get(number, f"t{number}") for number in range(size)]


def convert_marian(folder: Path, output: Path, quantization: str) -> None:
    """Convert a Hugging Face folder of MarianMT, tokenizer's files included, by CTranslate2's own converter."""
    from ctranslate2.converters import TransformersConverter

    TransformersConverter(str(folder)).convert(str(output), quantization=quantization, force=True)


def convert_bundle(folder: Path, output: Path, quantization: str) -> None:
    """Convert a bundle of Translane's, read back as the checkpoint that the bundle was exported from.

    Raises:
        ValueError: CTranslate2's Transformer has no place for something of the model.
    """
    from ctranslate2.converters.converter import Converter

    class BundleConverter(Converter):  # type: ignore[misc]
        def _load(self) -> Any:
            from translane_export.sources.bundle import BundleReader

            return _specification(BundleReader().read(folder))

    BundleConverter().convert(str(output), quantization=quantization, force=True)


def _specification(checkpoint: Any) -> Any:
    """A checkpoint as CTranslate2's description of a Transformer, weights included."""
    from ctranslate2.specs import common_spec, transformer_spec

    from translane_export.model import TransformerConfig

    config, fields = checkpoint.config, TransformerConfig.model_fields
    unsupported = {
        "RMSNorm": config.norm_kind != "layer",
        "gated feed-forward networks": config.gated,
        "relative positions": bool(config.relative_buckets),
        "no position vectors": config.positions not in ("sinusoidal", "learned"),
        "projections without biases": not config.biases,
        "attention that is not scaled": config.attention_scale is not True,
        "a norm that the placement does not imply": config.final_norm is not None,
        "scaled logits": config.logit_scale != 1,
        "suppressed ids": bool(config.suppressed_ids),
        "heads of another size": config.head_dim * config.heads != config.d_model,
        **{name: getattr(config, name) != fields[name].default for name in _ATTENTION},
    }
    if names := [name for name, found in unsupported.items() if found]:
        raise ValueError(f"this conversion for CTranslate2 does not cover {', '.join(names)}")
    specification = transformer_spec.TransformerSpec.from_config(
        (config.encoder_layers, config.decoder_layers),
        config.heads,
        pre_norm=config.norm == "pre",
        activation=getattr(common_spec.Activation, _ACTIVATIONS[config.activation]),
        layernorm_embedding=config.embedding_norm,
    )
    _Weights(checkpoint).fill(specification)
    specials = {config.unk_id: UNKNOWN, config.start_id: START, config.eos_id: END}
    specification.register_source_vocabulary(tokens(config.source_vocab_size, specials))
    specification.register_target_vocabulary(tokens(config.target_vocab_size, specials))
    settings = specification.config
    settings.unk_token, settings.bos_token, settings.eos_token = UNKNOWN, START, END
    settings.decoder_start_token = START
    settings.layer_norm_epsilon = config.layer_norm_eps
    return specification


class _Weights:
    """Puts a checkpoint's tensors where CTranslate2 has them."""

    def __init__(self, checkpoint: Any) -> None:
        self._config = checkpoint.config
        self._state = checkpoint.state_dict

    def fill(self, specification: Any) -> None:
        for side, stack in (("encoder", specification.encoder), ("decoder", specification.decoder)):
            self._embed(stack, side)
            for number, layer in enumerate(stack.layer):
                self._layer(layer, f"{side}.layers.{number}")
            if self._config.norm == "pre":
                self._norm(stack.layer_norm, f"{side}.final_norm")
        self._linear(specification.decoder.projection, "output_projection")

    def _embed(self, stack: Any, side: str) -> None:
        from translane_export.model.positions import sinusoid_table

        config, name = self._config, f"{side}.embedding"
        vectors = stack.embeddings[0] if side == "encoder" else stack.embeddings
        vectors.weight = self._numbers(f"{name}.tokens.weight")
        stack.scale_embeddings = math.sqrt(config.d_model) if config.scale_embeddings else 1.0
        learned = config.positions == "learned"
        stack.position_encodings.encodings = (
            self._numbers(f"{name}.positions.embedding.weight")
            if learned
            else sinusoid_table(config.max_positions, config.d_model).numpy()
        )
        if config.embedding_norm:
            self._norm(stack.layernorm_embedding, f"{name}.norm")

    def _layer(self, layer: Any, name: str) -> None:
        packed, projected = layer.self_attention.linear
        self._linear(packed, *(f"{name}.self_attention.{part}" for part in ("q_proj", "k_proj", "v_proj")))
        self._linear(projected, f"{name}.self_attention.out_proj")
        self._norm(layer.self_attention.layer_norm, f"{name}.self_attention_residual.norm")
        if hasattr(layer, "attention"):
            queries, keys_values, projected = layer.attention.linear
            self._linear(queries, f"{name}.cross_attention.q_proj")
            self._linear(keys_values, *(f"{name}.cross_attention.{part}" for part in ("k_proj", "v_proj")))
            self._linear(projected, f"{name}.cross_attention.out_proj")
            self._norm(layer.attention.layer_norm, f"{name}.cross_attention_residual.norm")
        self._linear(layer.ffn.linear_0, f"{name}.feed_forward.up_proj")
        self._linear(layer.ffn.linear_1, f"{name}.feed_forward.down_proj")
        self._norm(layer.ffn.layer_norm, f"{name}.feed_forward_residual.norm")

    def _linear(self, place: Any, *names: str) -> None:
        """Join several projections into one, whose outputs are theirs, one after the other."""
        import numpy as np

        place.weight = np.concatenate([self._numbers(f"{name}.weight") for name in names])
        place.bias = np.concatenate([self._numbers(f"{name}.bias") for name in names])

    def _norm(self, place: Any, name: str) -> None:
        place.gamma, place.beta = self._numbers(f"{name}.weight"), self._numbers(f"{name}.bias")

    def _numbers(self, name: str) -> Any:
        return self._state[name].detach().float().contiguous().numpy()
