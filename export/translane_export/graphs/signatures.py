"""Sizes of a model, and inputs and outputs of its graphs, as manifests have them; docs/export.md explains them."""

from __future__ import annotations

from typing import Any

import torch
from msgspec.structs import replace

from translane_export.core.settings import Format
from translane_export.graphs.head_padding import padded_config
from translane_export.model import TransformerConfig
from translane_server.bundle.manifest import Architecture, Graph, Graphs, GraphTensor

ON_REQUEST = {
    "with_candidates": ("candidate_ids", "candidate_log_probs"),
    "with_log_probs": ("candidate_log_probs",),
}
"""Inputs of a step, neighbours in this order, each with the outputs that it asks for.

`with_log_probs` has no effect without `with_candidates`.
"""
NUM_BLOCKS = "num_blocks"


def architecture(config: TransformerConfig, family: str, parameters: int) -> Architecture:
    """Return what the manifest says of the sizes of a model."""
    return Architecture(
        family=family,
        encoder_layers=config.encoder_layers,
        decoder_layers=config.decoder_layers,
        d_model=config.d_model,
        heads=config.heads,
        head_size=padded_config(config).head_dim,
        kv_heads=config.kv_heads,
        decoder_unit=config.decoder_unit,
        ffn_size=config.ffn_size,
        source_vocab_size=config.source_vocab_size,
        target_vocab_size=config.target_vocab_size,
        parameters=parameters,
    )


def own_caches(config: TransformerConfig, capacity: Any) -> tuple[int, tuple[int, Any, int]]:
    """Return how many caches of earlier tokens a step has, and the shape of a row in each.

    They are keys and values of `capacity` positions or, with a recurrent unit, cells: see
    `translane_export.graphs.self_attention`.
    """
    if config.decoder_unit == "ssru":
        return config.decoder_layers, (1, 2, config.d_model)
    return 2 * config.decoder_layers, _block(config, capacity)


def bundle_signatures(
    config: TransformerConfig,
    dtype: torch.dtype,
    *,
    cross_dtype: torch.dtype | None = None,
    form: Format = "onnx",
    for_cuda: bool = False,
    vocabulary_blocks: int | None = None,
    alignment: bool = False,
    shortlist: bool = False,
) -> Graphs:
    """Return the signatures of all graphs of a bundle that computes in `dtype`.

    The encoder maps sources to each decoder layer's cross-attention keys and values, of `cross_dtype`, which is `dtype`
    if it is not given. Steps return those that are int8 as they were given. A step maps tokens, positions and caches to
    candidates, logits and updated caches; with `alignment`, also to the query that the alignment graph takes with the
    keys of its layer. A bundle for CUDA has a greedy graph, too, and no inputs of `ON_REQUEST`: on a GPU all of a step
    is queued at once, and a branch would make the device wait for the CPU. With `vocabulary_blocks`, an input says how
    many of them to look through.
    """
    ending = "onnx" if form == "onnx" else "pt"
    cross_dtype = cross_dtype or dtype
    width = config.heads * padded_config(config).head_dim
    count = (_tensor("num_candidates", "int64", 1),)
    blocks = (_tensor(NUM_BLOCKS, "int64", 1),) if vocabulary_blocks is not None else ()
    asked = tuple(_tensor(name, "bool") for name in ON_REQUEST) if form == "onnx" and not for_cuda else ()
    allowed = (_tensor("shortlist", "int64", "tokens"), _tensor("outside", "float32", "rows", "tokens"))
    cross = _cross(config, cross_dtype, "rows", "source_capacity")
    caches = (*_own("self", config, dtype), *cross)
    query = (_tensor("alignment_query", _name(dtype), "rows", width),) if alignment else ()
    own = _own("present_self", config, dtype)
    as_given = tuple(replace(each, name=f"present_{each.name}") for each in cross)
    present = (*query, *own, *(as_given if cross_dtype == torch.int8 else ()))
    return Graphs(
        encoder=Graph(
            file=f"encoder.{ending}",
            inputs=(_tensor("source_ids", "int64", "batch", "source"), _tensor("source_lengths", "int32", "batch")),
            outputs=_cross(config, cross_dtype, "batch", "source"),
        ),
        decoder=Graph(
            file=f"decoder.{ending}",
            inputs=(*_ROW_STATE, *count, *blocks, *asked, *caches),
            outputs=(
                _tensor("candidate_ids", "int64", "rows", "candidates"),
                _tensor("candidate_log_probs", "float32", "rows", "candidates"),
                _tensor("logits", "float32", "rows", config.target_vocab_size),
                *present,
            ),
        ),
        greedy=Graph(
            file="greedy.onnx",
            inputs=(*_ROW_STATE, *caches),
            outputs=(_tensor("candidate_ids", "int64", "rows", 1), *own),
        )
        if for_cuda
        else None,
        alignment=Graph(
            file="alignment.onnx",
            inputs=(*query, _ROW_STATE[2], replace(cross[0], name="cross_key")),
            outputs=(_tensor("attention", "float32", "rows", "source_capacity"),),
        )
        if alignment
        else None,
        vocabulary_blocks=vocabulary_blocks,
        shortlist=Graph(
            file="shortlist.onnx",
            inputs=(*_ROW_STATE, *count, *allowed, *caches),
            outputs=(
                _tensor("candidate_places", "int64", "rows", "candidates"),
                _tensor("logits", "float32", "rows", "tokens"),
                *present,
            ),
        )
        if shortlist
        else None,
    )


def _own(prefix: str, config: TransformerConfig, dtype: torch.dtype) -> tuple[GraphTensor, ...]:
    count, shape = own_caches(config, "target_capacity")
    parts = ("key", "value") if count > config.decoder_layers else ("state",)
    return _per_layer(prefix, parts, config, dtype, "rows", *shape)


def _cross(config: TransformerConfig, dtype: torch.dtype, rows: str, capacity: str) -> tuple[GraphTensor, ...]:
    return _per_layer("cross", ("key", "value"), config, dtype, rows, *_block(config, capacity))


def _per_layer(
    prefix: str, parts: tuple[str, ...], config: TransformerConfig, dtype: torch.dtype, *shape: Any
) -> tuple[GraphTensor, ...]:
    """Return each layer's caches: ``{prefix}_key_0``, ``{prefix}_value_0``, and so on."""
    layers = range(config.decoder_layers)
    return tuple(_tensor(f"{prefix}_{part}_{layer}", _name(dtype), *shape) for layer in layers for part in parts)


def _block(config: TransformerConfig, capacity: str) -> tuple[int, str, int]:
    """Return the shape of a row's keys, or of its values."""
    return config.key_value_heads, capacity, padded_config(config).head_dim


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _tensor(name: str, dtype: str, *shape: Any) -> GraphTensor:
    return GraphTensor(name=name, dtype=dtype, shape=shape)


_ROW_STATE = (
    _tensor("token_ids", "int64", "rows"),
    _tensor("positions", "int32", "rows"),
    _tensor("source_lengths", "int32", "rows"),
)
