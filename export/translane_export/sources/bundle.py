"""Reads a model bundle back as the checkpoint it was exported from, as far as the bundle still has it.

So that a bundle whose checkpoint is gone gets what newer exporters write. The graphs hold every weight under the name
that `translane_export.graphs` gave it, and as it runs: in float32 what was stored as float16 comes back as those same
numbers, and what was stored as int8 as units × scales. What a trained model no longer needs (dropout) is lost, and so
are the sample sentences.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from translane_export.checkpoint import Checkpoint
from translane_export.errors import ExportError
from translane_export.graphs.head_padding import padded_config, unpad_heads
from translane_export.graphs.relative_graph import read_tables
from translane_export.model import Transformer, TransformerConfig
from translane_export.model.config import Activation
from translane_export.model.positions import sinusoid_table
from translane_export.ranges import Ranges
from translane_export.sources.placed_tensors import PROJECTION
from translane_export.sources.stored_graph import RMS_NORMS, StoredGraph, load_graph
from translane_export.tokenizer_files import TokenizerFiles
from translane_server.bundle import MANIFEST, Bundle, load_bundle
from translane_server.errors import StartupError
from translane_server.manifest import Manifest
from translane_server.printable import shown

_ACTIVATIONS: dict[str, Activation] = {
    "Relu": "relu",
    "Gelu": "gelu",
    "Gelu tanh": "gelu_tanh",
    "Erf": "gelu",
    "Sigmoid": "silu",
    "BiasGelu": "gelu",
    "FastGelu": "gelu_tanh",
    "QuickGelu": "silu",
}
_PARTS = ("q_proj", "k_proj", "v_proj")
_RELATIVE = "stack.relative_positions"


class BundleReader:
    """See `translane_server.bundle` for the folder."""

    format = "model bundle"
    family = "transformer"

    def recognises(self, folder: Path) -> bool:
        """Whether there is a manifest."""
        return (folder / MANIFEST).is_file()

    def read(self, folder: Path) -> Checkpoint:
        """Read the bundle back."""
        try:
            bundle = load_bundle(folder)
        except StartupError as error:
            raise ExportError(str(error)) from error
        try:
            encoder, decoder = (
                StoredGraph(load_graph(bundle, graph.file))
                for graph in (bundle.manifest.graphs.encoder, bundle.manifest.graphs.decoder)
            )
            return _read(bundle, encoder, decoder)
        except KeyError as error:
            raise ExportError(f"model bundle {folder}: its graphs have no {shown(error.args[0])}") from error
        except ValueError as error:
            raise ExportError(f"model bundle {folder}: it cannot be read back: {error}") from error


def _read(bundle: Bundle, encoder: StoredGraph, decoder: StoredGraph) -> Checkpoint:
    manifest = bundle.manifest
    config = _config(manifest, encoder, decoder)
    provenance = manifest.provenance
    return Checkpoint(
        config=config,
        state_dict=_state_dict(config, encoder.weights, decoder.weights),
        tokenizer=TokenizerFiles(
            manifest.tokenizer, {name: bundle.path(name) for name in sorted(manifest.tokenizer.files)}
        ),
        languages=manifest.languages,
        samples=(),
        metadata=dict(provenance.get("training", {})),
        name=str(provenance.get("checkpoint") or ""),
        settings=_settings(manifest),
        ranges=Ranges(encoder.ranges, decoder.ranges, encoder.keys_values) if manifest.precision == "int8" else None,
        quality=manifest.quality,
        quality_estimation=manifest.quality_estimation,
    )


def _config(manifest: Manifest, encoder: StoredGraph, decoder: StoredGraph) -> TransformerConfig:
    """Return the configuration that the bundle was exported with, or what an older bundle's graphs say of it."""
    stored = manifest.provenance.get("model")
    return _inferred_config(manifest, encoder, decoder) if stored is None else _stored_config(manifest, stored)


def _stored_config(manifest: Manifest, stored: Any) -> TransformerConfig:
    if not isinstance(stored, Mapping):
        raise ValueError("provenance.model is no configuration")
    config, sizes = TransformerConfig.from_dict(stored), manifest.architecture
    said = {
        "encoder_layers": config.encoder_layers,
        "decoder_layers": config.decoder_layers,
        "d_model": config.d_model,
        "heads": config.heads,
        "kv_heads": config.kv_heads,
        "head_size": padded_config(config).head_dim,
        "ffn_size": config.ffn_size,
        "source_vocab_size": config.source_vocab_size,
        "target_vocab_size": config.target_vocab_size,
    }
    for name, value in said.items():
        if getattr(sizes, name) != value:
            raise ValueError(f"provenance.model and architecture disagree about {name}")
    if config.max_positions < max(manifest.limits.source_tokens, manifest.limits.target_tokens):
        raise ValueError(f"provenance.model has {config.max_positions:,} positions, and its limits are above them")
    return config


def _inferred_config(manifest: Manifest, encoder: StoredGraph, decoder: StoredGraph) -> TransformerConfig:
    sizes, ids = manifest.architecture, manifest.special_ids
    operators = encoder.operators()
    activations = {_ACTIVATIONS[name] for name in operators & _ACTIVATIONS.keys()}
    if len(activations) != 1:
        raise ValueError("its activation is none this exporter knows")
    scale = encoder.embedding_scale()
    scaled = _is_about(scale, math.sqrt(sizes.d_model))
    if not scaled and scale != 1:
        raise ValueError(f"it scales embeddings by {scale:g}")
    logit_scale = decoder.logit_scale()
    table = encoder.weights.get("embedding.table")
    limits = manifest.limits
    max_positions = max(limits.source_tokens, limits.target_tokens) if table is None else len(table)
    relative = decoder.weights.get(f"{_RELATIVE}.weight")  # [buckets, H]
    suppressed = _suppressed_ids(decoder.weights)
    return TransformerConfig(
        source_vocab_size=sizes.source_vocab_size,
        target_vocab_size=sizes.target_vocab_size,
        d_model=sizes.d_model,
        encoder_layers=sizes.encoder_layers,
        decoder_layers=sizes.decoder_layers,
        heads=sizes.heads,
        head_size=None if sizes.head_size * sizes.heads == sizes.d_model else sizes.head_size,
        ffn_size=sizes.ffn_size,
        activation=activations.pop(),
        norm="pre" if "stack.final_norm.weight" in decoder.weights else "post",
        positions="none" if table is None else "sinusoidal" if _is_sinusoidal(table) else "learned",
        max_positions=max_positions,
        scale_embeddings=scaled,
        tie_embeddings=_tying(encoder.weights, decoder.weights),
        layer_norm_eps=decoder.norm_epsilon(),
        pad_id=ids.pad,
        unk_id=ids.unk,
        bos_id=ids.bos,
        eos_id=ids.eos,
        decoder_start_id=None if ids.decoder_start == ids.bos else ids.decoder_start,
        embedding_norm="embedding.norm.weight" in encoder.weights,
        norm_kind="rms" if operators & RMS_NORMS else "layer",
        biases="stack.layers.0.feed_forward.up_proj.bias" in decoder.weights,
        gated="stack.layers.0.feed_forward.gate_proj.weight" in encoder.weights,
        attention_scale=encoder.scales_attention(),
        logit_scale=sizes.d_model**-0.5 if _is_about(logit_scale, sizes.d_model**-0.5) else logit_scale,
        suppressed_ids=tuple(suppressed.tolist()),
        **({} if relative is None else _relative_positions(relative, decoder)),
    )


def _suppressed_ids(decoder: Mapping[str, Tensor]) -> Tensor:
    """The ids whose logits are -inf: a bias of the output projection, or what was added to logits after it."""
    added = decoder.get("suppression", decoder.get("output_projection.bias", torch.zeros(0)))
    return added.isinf().nonzero().flatten()


def _relative_positions(weight: Tensor, decoder: StoredGraph) -> dict[str, Any]:
    """The decoder's table of buckets has the distances from 0 to the largest."""
    distances, _ = decoder.shapes[f"{_RELATIVE}.bucket_of_offset"]
    return {"relative_buckets": len(weight), "relative_max_distance": distances - 1}


def _is_about(number: float, expected: float) -> bool:
    """Whether they are the same but for the rounding of a bfloat16."""
    return math.isclose(number, expected, rel_tol=2**-8)


def _is_sinusoidal(table: Tensor) -> bool:
    if table.shape[1] % 2:
        return False
    return torch.allclose(table, sinusoid_table(*table.shape), rtol=0, atol=2**-8)  # as bfloat16 may have rounded it


def _tying(encoder: Mapping[str, Tensor], decoder: Mapping[str, Tensor]) -> Any:
    """A table that is also the output projection is stored under the projection's name alone."""
    projection = decoder[PROJECTION]
    if not torch.equal(decoder.get("embedding.tokens.weight", projection), projection):
        return "none"
    return "three-way" if torch.equal(encoder["embedding.tokens.weight"], projection) else "two-way"


def _state_dict(
    config: TransformerConfig, encoder: Mapping[str, Tensor], decoder: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Undo what `EncoderGraph` and `DecoderGraph` do to names and to Q, K and V."""
    projection = decoder[PROJECTION]
    state = {
        "encoder.embedding.tokens.weight": encoder["embedding.tokens.weight"],
        "decoder.embedding.tokens.weight": decoder.get("embedding.tokens.weight", projection),
        PROJECTION: projection,
    }
    if config.biases:
        bias = state["output_projection.bias"] = decoder["output_projection.bias"]
        if "suppressed.weight" in decoder or not config.suppressed_share:  # a bias of zeros is left out of the graph
            bias[_suppressed_ids(decoder)] = decoder.get("suppressed.bias", torch.tensor(0.0))
    kinds = ("weight", "bias") if config.has_attention_biases else ("weight",)
    head_size = padded_config(config).head_dim
    sizes = [heads * head_size for heads in (config.heads, config.key_value_heads, config.key_value_heads)]
    for side, weights, layers in (
        ("encoder", encoder, config.encoder_layers),
        ("decoder", decoder, config.decoder_layers),
    ):
        if config.positions == "learned":
            state[f"{side}.embedding.positions.embedding.weight"] = weights["embedding.table"]
        for name, tensor in weights.items():
            if name.startswith("embedding.norm."):
                state[f"{side}.{name}"] = tensor
            if name.startswith("stack."):
                state[f"{side}.{name.removeprefix('stack.')}"] = tensor
        for layer in range(layers):
            for kind in kinds:
                packed = weights[f"packed.{layer}.{kind}"]
                if len(packed) != sum(sizes):
                    raise ValueError(f"packed.{layer}.{kind} has {len(packed)} rows, and its heads {sum(sizes)}")
                for part, tensor in zip(_PARTS, torch.split(packed, sizes), strict=True):
                    state[f"{side}.layers.{layer}.self_attention.{part}.{kind}"] = tensor
            if config.relative_window:
                keys, values = (weights[f"relative.{layer}.{part}.weight"] for part in ("keys", "values"))
                owner = f"{side}.layers.{layer}.self_attention.relative"
                tables = 1 if config.relative_shared else config.heads
                state[f"{owner}.keys"], state[f"{owner}.values"] = read_tables(keys, values, tables)
    for name, tensor in encoder.items():
        if name.startswith("cross."):
            layer_name, _, rest = name.removeprefix("cross.").partition(".")
            state[f"decoder.layers.{layer_name}.cross_attention.{rest}"] = tensor
    with torch.device("meta"):
        own = Transformer(config).state_dict()  # a graph holds tables, too, that follow from the configuration
    return {name: tensor for name, tensor in unpad_heads(state, config).items() if name in own}


def _settings(manifest: Manifest) -> dict[str, Any]:
    """What the bundle was exported with, for what is not asked for otherwise."""
    return {
        "name": manifest.name,
        "model_version": manifest.version,
        "license": manifest.license,
        "attribution": str(manifest.provenance.get("attribution") or ""),
        "precision": manifest.precision,
        "weight_storage": manifest.weight_storage if manifest.precision == "fp32" else None,
        "max_source_tokens": manifest.limits.source_tokens,
        "max_target_tokens": manifest.limits.target_tokens,
        "default_max_length": manifest.decoding_defaults.max_length,
        "decoding_defaults": manifest.decoding_defaults.search,
    }
