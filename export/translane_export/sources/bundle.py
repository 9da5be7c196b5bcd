"""Reads a model bundle back as the checkpoint it was exported from, as far as the bundle still has it.

So that a bundle whose checkpoint is gone gets what newer exporters write. The graphs hold every weight under the name
that `translane_export.graphs` gave it, and as it runs: in float32 what was stored as float16 comes back as those same
numbers, and what was stored as int8 as units × scales. What a trained model no longer needs (dropout) is lost, and so
are the sample sentences.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx_ir as ir
import torch
from google.protobuf.message import DecodeError
from msgspec.structs import asdict
from torch import Tensor

from translane_export.core.checkpoint import Checkpoint
from translane_export.core.errors import ExportError
from translane_export.core.ranges import Limits, Ranges
from translane_export.core.tokenizer_files import TokenizerFiles
from translane_export.graphs.head_padding import padded_config, unpad_heads
from translane_export.graphs.self_attention import read_tables
from translane_export.graphs.signatures import architecture
from translane_export.graphs.writer import initializers
from translane_export.int8.keys_values import read_scales
from translane_export.int8.quantize import read_int8
from translane_export.model import Transformer, TransformerConfig
from translane_export.sources.placed_tensors import PROJECTION
from translane_server.bundle.bundle import MANIFEST, Bundle, load_bundle
from translane_server.bundle.manifest import Manifest
from translane_server.bundle.shortlist import Shortlist, load_shortlist
from translane_server.core.errors import StartupError
from translane_server.core.files import read_regular
from translane_server.core.terminal import shown

_PARTS = ("q_proj", "k_proj", "v_proj")
_FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


class StoredGraph(NamedTuple):
    """What a graph holds: weights in float32, ranges of its int8 projections' inputs by weight, and other units."""

    weights: dict[str, Tensor]
    ranges: dict[str, Limits]
    keys_values: dict[str, np.float32]


def is_bundle(folder: Path) -> bool:
    """Whether there is a manifest."""
    return (folder / MANIFEST).is_file()


def read_bundle(folder: Path) -> Checkpoint:
    """Read the bundle back."""
    try:
        bundle = load_bundle(folder)
        shortlist = load_shortlist(bundle) if bundle.manifest.shortlist else None
    except StartupError as error:
        raise ExportError(str(error)) from error
    try:
        encoder, decoder = (
            read_graph(bundle, graph.file) for graph in (bundle.manifest.graphs.encoder, bundle.manifest.graphs.decoder)
        )
        return _read(bundle, encoder, decoder, shortlist)
    except KeyError as error:
        raise ExportError(f"model bundle {folder}: its graphs have no {shown(error.args[0])}") from error
    except ValueError as error:
        raise ExportError(f"model bundle {folder}: it cannot be read back: {error}") from error


def _read(bundle: Bundle, encoder: StoredGraph, decoder: StoredGraph, shortlist: Shortlist | None) -> Checkpoint:
    manifest = bundle.manifest
    config = _config(manifest)
    provenance = manifest.provenance
    return Checkpoint(
        config=config,
        state_dict=_state_dict(config, encoder.weights, decoder.weights),
        tokenizer=TokenizerFiles(
            manifest.tokenizer, {name: bundle.path(name) for name in sorted(manifest.tokenizer.files)}
        ),
        languages=manifest.languages,
        metadata=dict(provenance.training),
        name=provenance.checkpoint,
        settings=_settings(manifest),
        ranges=Ranges(encoder.ranges, decoder.ranges, encoder.keys_values) if manifest.precision == "int8" else None,
        quality=manifest.quality,
        quality_estimation=manifest.quality_estimation,
        shortlist=shortlist,
    )


def _config(manifest: Manifest) -> TransformerConfig:
    """Return the configuration that the bundle was exported with."""
    config, sizes = TransformerConfig.from_dict(manifest.provenance.model), manifest.architecture
    for name, value in asdict(architecture(config, sizes.family, sizes.parameters)).items():
        if getattr(sizes, name) != value:
            raise ValueError(f"provenance.model and architecture disagree about {name}")
    if config.max_positions < max(manifest.limits.source_tokens, manifest.limits.target_tokens):
        raise ValueError(f"provenance.model has {config.max_positions:,} positions, and its limits are above them")
    return config


def _suppressed_ids(decoder: Mapping[str, Tensor]) -> Tensor:
    """The ids whose logits are -inf, a bias of the output projection."""
    added = decoder.get("output_projection.bias", torch.zeros(0))
    return added.isinf().nonzero().flatten()


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
            for kind in kinds if side == "encoder" or config.decoder_unit == "self-attention" else ():
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
        "attribution": manifest.provenance.attribution,
        "precision": manifest.precision,
        "weight_storage": manifest.weight_storage if manifest.precision == "fp32" else None,
        "max_source_tokens": manifest.limits.source_tokens,
        "max_target_tokens": manifest.limits.target_tokens,
        "default_max_length": manifest.decoding_defaults.max_length,
        "default_length_factor": manifest.decoding_defaults.length_factor,
        "decoding_defaults": manifest.decoding_defaults.search,
        "alignment_layer": manifest.alignment.layer if manifest.alignment else None,
    }


def read_graph(bundle: Bundle, name: str) -> StoredGraph:
    """Read the graph in the bundle's file `name`, with its weights where the bundle's manifest has them.

    onnx-ir takes no links that leave the folder, so weights are read from where a link leads. The bundle's reader has
    checked that place.

    Raises:
        ValueError: the file is no graph, or the weights are in a file that the manifest does not list.
    """
    try:
        model = ir.from_proto(onnx.ModelProto.FromString(read_regular(bundle.path(name))))
    except DecodeError:
        raise ValueError(f"{name} is no ONNX graph") from None
    for value in initializers(model):
        stored = value.const_value
        if isinstance(stored, ir.ExternalTensor):
            if str(stored.location) not in bundle.manifest.files:
                raise ValueError(
                    f"{name} has weights in {shown(str(stored.location))}, which the manifest does not list"
                )
            place = bundle.path(str(stored.location)).resolve()
            value.const_value = ir.ExternalTensor(
                place.name,
                stored.offset,
                stored.length,
                stored.dtype,
                shape=ir.Shape(stored.shape),
                name=stored.name,
                base_dir=place.parent,
            )
    weights: dict[str, Tensor] = {}
    for value in initializers(model):
        tensor = value.const_value
        assert tensor is not None
        if tensor.dtype in _FLOATS:
            weights[str(value.name).removesuffix(".float16")] = torch.from_numpy(tensor.numpy().astype(np.float32))
    rounded, ranges = read_int8(model.graph)
    weights |= {name: torch.from_numpy(array) for name, array in rounded.items()}
    return StoredGraph(weights, ranges, read_scales(model.graph))
