"""Sizes of a model, and inputs and outputs of its graphs, as manifests have them; docs/export.md explains them."""

from __future__ import annotations

from typing import Any

import torch

from translane_export.core.settings import Format
from translane_export.graphs.head_padding import padded_config
from translane_export.model import TransformerConfig
from translane_server.bundle.manifest import Architecture, Graph, Graphs, GraphTensor

WITH_LOG_PROBS = "with_log_probs"
NUM_BLOCKS = "num_blocks"
SHORTLIST = "shortlist"

_TYPE_NAMES = {
    torch.float32: "float32",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.int8: "int8",
}


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
    `translane_export.graphs.recurrence`.
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

    Cross-attention's keys and values are of `cross_dtype`, which is `dtype` if it is not given. A bundle for CUDA has a
    greedy graph, too, and no input that asks for log-probabilities.
    """
    ending = "onnx" if form == "onnx" else "pt"
    cross_dtype = cross_dtype or dtype
    step: dict[str, Any] = {"cross_dtype": cross_dtype, "alignment_query": alignment}
    return Graphs(
        encoder=encoder_signature(config, cross_dtype, f"encoder.{ending}"),
        decoder=decoder_signature(
            config,
            dtype,
            f"decoder.{ending}",
            **step,
            # on a GPU all of a step is queued at once, and a branch would make the device wait for the CPU
            log_probs_on_request=form == "onnx" and not for_cuda,
            takes_blocks=vocabulary_blocks is not None,
        ),
        greedy=greedy_signature(config, dtype, "greedy.onnx") if for_cuda else None,
        alignment=alignment_signature(config, dtype, "alignment.onnx", cross_dtype=cross_dtype) if alignment else None,
        vocabulary_blocks=vocabulary_blocks,
        shortlist=shortlist_signature(config, dtype, "shortlist.onnx", **step) if shortlist else None,
    )


def encoder_signature(config: TransformerConfig, dtype: torch.dtype, file: str) -> Graph:
    """Sources to each decoder layer's cross-attention keys and values, which are of `dtype`."""
    return Graph(
        file=file,
        inputs=(_tensor("source_ids", "int64", "batch", "source"), _tensor("source_lengths", "int32", "batch")),
        outputs=_caches("cross", config, dtype, "batch", "source"),
    )


def decoder_signature(
    config: TransformerConfig,
    dtype: torch.dtype,
    file: str,
    *,
    cross_dtype: torch.dtype | None = None,
    alignment_query: bool = False,
    log_probs_on_request: bool = False,
    takes_blocks: bool = False,
) -> Graph:
    """One step: tokens, positions and caches to candidates, logits and updated caches.

    With a `cross_dtype`, cross-attention's keys and values are of that type; those that are int8 are outputs, too, as
    they were given. With `log_probs_on_request`, there is an input that says whether to compute log-probabilities. With
    `takes_blocks`, there is one that says how many blocks of the vocabulary to look through. With `alignment_query`,
    the query that the alignment graph takes, too.
    """
    width = _query_width(config)
    asked = (_tensor(WITH_LOG_PROBS, "bool"),) if log_probs_on_request else ()
    blocks = (_tensor(NUM_BLOCKS, "int64", 1),) if takes_blocks else ()
    query = (_tensor("alignment_query", _TYPE_NAMES[dtype], "rows", width),) if alignment_query else ()
    cross_dtype = cross_dtype or dtype
    cross = ("rows", "source_capacity")
    returned = _caches("present_cross", config, cross_dtype, *cross) if cross_dtype == torch.int8 else ()
    return Graph(
        file=file,
        inputs=(
            *_ROW_STATE,
            _tensor("num_candidates", "int64", 1),
            *blocks,
            *asked,
            *_own("self", config, dtype),
            *_caches("cross", config, cross_dtype, *cross),
        ),
        outputs=(
            _tensor("candidate_ids", "int64", "rows", "candidates"),
            _tensor("candidate_log_probs", "float32", "rows", "candidates"),
            _tensor("logits", "float32", "rows", config.target_vocab_size),
            *query,
            *_own("present_self", config, dtype),
            *returned,
        ),
    )


def shortlist_signature(
    config: TransformerConfig,
    dtype: torch.dtype,
    file: str,
    *,
    cross_dtype: torch.dtype | None = None,
    alignment_query: bool = False,
) -> Graph:
    """One step over the tokens of a shortlist: as of `decoder_signature`, to the places of candidates among them."""
    plain = decoder_signature(config, dtype, file, cross_dtype=cross_dtype, alignment_query=alignment_query)
    counts = len(_ROW_STATE) + 1
    return Graph(
        file=file,
        inputs=(
            *plain.inputs[:counts],
            _tensor(SHORTLIST, "int64", "tokens"),
            _tensor("outside", "float32", "rows", "tokens"),
            *plain.inputs[counts:],
        ),
        outputs=(
            _tensor("candidate_places", "int64", "rows", "candidates"),
            _tensor("logits", "float32", "rows", "tokens"),
            *plain.outputs[3:],
        ),
    )


def greedy_signature(config: TransformerConfig, dtype: torch.dtype, file: str) -> Graph:
    """One step of which nothing but the best token is wanted: tokens, positions and caches to it and updated caches."""
    return Graph(
        file=file,
        inputs=(
            *_ROW_STATE,
            *_own("self", config, dtype),
            *_caches("cross", config, dtype, "rows", "source_capacity"),
        ),
        outputs=(
            _tensor("candidate_ids", "int64", "rows", 1),
            *_own("present_self", config, dtype),
        ),
    )


def alignment_signature(
    config: TransformerConfig, dtype: torch.dtype, file: str, *, cross_dtype: torch.dtype | None = None
) -> Graph:
    """A step's query and the keys of its layer to attention weights."""
    name, keys = _TYPE_NAMES[dtype], _TYPE_NAMES[cross_dtype or dtype]
    return Graph(
        file=file,
        inputs=(
            _tensor("alignment_query", name, "rows", _query_width(config)),
            _tensor("source_lengths", "int32", "rows"),
            _tensor("cross_key", keys, "rows", *_block(config, "source_capacity")),
        ),
        outputs=(_tensor("attention", "float32", "rows", "source_capacity"),),
    )


def _own(prefix: str, config: TransformerConfig, dtype: torch.dtype) -> tuple[GraphTensor, ...]:
    count, shape = own_caches(config, "target_capacity")
    names = _per_layer(prefix, config.decoder_layers, ("key", "value") if count > config.decoder_layers else ("state",))
    return tuple(_tensor(name, _TYPE_NAMES[dtype], "rows", *shape) for name in names)


def _per_layer(prefix: str, layers: int, parts: tuple[str, ...] = ("key", "value")) -> list[str]:
    """Return the names of each layer's caches: ``{prefix}_key_0``, ``{prefix}_value_0``, and so on."""
    return [f"{prefix}_{part}_{layer}" for layer in range(layers) for part in parts]


def _caches(
    prefix: str, config: TransformerConfig, dtype: torch.dtype, rows: str, capacity: str
) -> tuple[GraphTensor, ...]:
    shape = _block(config, capacity)
    return tuple(_tensor(name, _TYPE_NAMES[dtype], rows, *shape) for name in _per_layer(prefix, config.decoder_layers))


def _block(config: TransformerConfig, capacity: str) -> tuple[int, str, int]:
    """Return the shape of a row's keys, or of its values."""
    return config.key_value_heads, capacity, padded_config(config).head_dim


def _query_width(config: TransformerConfig) -> int:
    return config.heads * padded_config(config).head_dim


def _tensor(name: str, dtype: str, *shape: Any) -> GraphTensor:
    return GraphTensor(name=name, dtype=dtype, shape=shape)


_ROW_STATE = (
    _tensor("token_ids", "int64", "rows"),
    _tensor("positions", "int32", "rows"),
    _tensor("source_lengths", "int32", "rows"),
)
