"""Architectures of models, as settings of a small `TransformerConfig`, without vocabularies."""

import os
from typing import Any

_T5: dict[str, Any] = {
    "norm": "pre",
    "norm_kind": "rms",
    "layer_norm_eps": 1e-6,
    "biases": False,
    "positions": "none",
    "relative_buckets": 8,
    "relative_max_distance": 12,
    "attention_scale": False,
    "scale_embeddings": False,
    "bos_id": 0,
}
# Models that `translane train` makes, in every arrangement that changes graphs.
TRAINED: dict[str, dict[str, Any]] = {
    "post-norm, two-way": {"tie_embeddings": "two-way"},
    "pre-norm, gelu, more decoder layers": {
        "norm": "pre",
        "activation": "gelu",
        "decoder_layers": 3,
        "encoder_layers": 1,
    },
    "silu, learned positions, untied": {"activation": "silu", "positions": "learned", "decoder_layers": 1},
    "three-way, joint vocabulary": {"tie_embeddings": "three-way", "joint": True},
    "head size apart from the model's": {"head_size": 24, "heads": 3, "norm": "pre", "layer_norm_eps": 1e-6},
    "sizes of no power of two": {"d_model": 20, "heads": 1, "head_size": 8, "ffn_size": 37, "scale_embeddings": False},
}
# Published models, without their sizes.
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "BART": {
        "norm": "post",
        "embedding_norm": True,
        "activation": "gelu",
        "positions": "learned",
        "scale_embeddings": False,
        "decoder_start_id": 3,
    },
    "mBART": {
        "norm": "pre",
        "embedding_norm": True,
        "activation": "gelu",
        "positions": "learned",
        "decoder_start_id": 3,
    },
    "Marian": {
        "norm": "post",
        "activation": "silu",
        "positions": "learned",
        "bos_id": 3,
        "decoder_start_id": 0,
        "suppressed_ids": (0,),
    },
    "M2M-100": {"norm": "pre", "activation": "relu", "positions": "learned", "decoder_start_id": 3},
    "T5": {**_T5, "activation": "relu", "logit_scale": 0.25},
    "T5 v1.1": {**_T5, "activation": "gelu_tanh", "gated": True, "suppressed_ids": (1, 5)},
}
# What attention and norms may be composed of (docs/attention.md), one variant each and some together.
VARIANTS: dict[str, dict[str, Any]] = {
    "relative vectors, clipped, shared": {"relative_window": 3},
    "relative vectors, clipped, by head": {"relative_window": 2, "relative_shared": False, "norm": "pre"},
    "relative vectors, unclipped": {"relative_window": 4, "relative_clipped": False},
    "relative vectors, unclipped, by head": {
        "relative_window": 3,
        "relative_clipped": False,
        "relative_shared": False,
        "positions": "none",
    },
    "proximal": {"proximal_bias": True, "proximal_init": True},
    "block-local": {"block_length": 3},
    "windows": {"window_size": 5, "look_backward": 1, "look_forward": 2},
    "windows, exact": {"window_size": 3, "look_backward": 2, "look_forward": 1, "exact_window": True},
    "softmax1": {"attention_normalizer": "softmax1"},
    "keys longer than values": {"head_size": 16, "value_size": 12, "heads": 2},
    "values longer than keys": {"head_size": 10, "value_size": 20, "heads": 3, "norm": "pre"},
    "no attention biases": {"attention_biases": False},
    "attention biases alone": {"biases": False, "attention_biases": True},
    "grouped queries": {"heads": 4, "kv_heads": 2},
    "one head of keys": {"heads": 4, "kv_heads": 1, "norm": "pre"},
    "rotary": {"positions": "rotary", "head_size": 16},
    "rotary, neighbours, odd sizes": {
        "positions": "rotary",
        "rotary_interleaved": True,
        "head_size": 10,
        "heads": 3,
        "rotary_base": 500.0,
    },
    "ALiBi": {"positions": "alibi", "heads": 3, "head_size": 8},
    "recurrent unit": {"decoder_unit": "ssru"},
    "batch norm, post": {"norm_kind": "batch"},
    "batch norm, pre": {"norm_kind": "batch", "norm": "pre", "embedding_norm": True},
    "RMS norm, post": {"norm_kind": "rms"},
    "a norm after post-norm stacks": {"final_norm": True},
    "no norm after pre-norm stacks": {"final_norm": False, "norm": "pre"},
    "of everything": {
        "relative_window": 2,
        "relative_shared": False,
        "relative_buckets": 8,
        "relative_max_distance": 12,
        "positions": "alibi",
        "proximal_bias": True,
        "block_length": 6,
        "attention_normalizer": "softmax1",
        "heads": 4,
        "kv_heads": 2,
        "head_size": 12,
        "value_size": 9,
        "attention_biases": False,
        "norm": "pre",
        "norm_kind": "rms",
    },
    "rotary, grouped, windows, softmax1": {
        "positions": "rotary",
        "heads": 4,
        "kv_heads": 2,
        "head_size": 8,
        "window_size": 4,
        "attention_normalizer": "softmax1",
    },
}
# A few that have every piece between them stand for all, unless VARIANTS=all in the environment.
COMBINED = (
    "of everything",
    "rotary, grouped, windows, softmax1",
    "rotary, neighbours, odd sizes",
    "relative vectors, clipped, shared",
    "relative vectors, unclipped",
    "windows, exact",
    "block-local",
    "recurrent unit",
    "batch norm, pre",
    "a norm after post-norm stacks",
)
FOR_CUDA = (
    "of everything",
    "rotary, grouped, windows, softmax1",
    "relative vectors, unclipped",
    "recurrent unit",
    "batch norm, pre",
)
ARCHITECTURES |= {name: VARIANTS[name] for name in VARIANTS if name in COMBINED or os.environ.get("VARIANTS") == "all"}
# Sizes that tests export them in. With the same sizes, tests share an export: see `helpers.bundles`.
EXPORT_SIZES: dict[str, Any] = {
    "encoder_layers": 1,
    "decoder_layers": 2,
    "max_positions": 24,
    "tie_embeddings": "two-way",
}
ONE_LAYER = EXPORT_SIZES | {"decoder_layers": 1}
