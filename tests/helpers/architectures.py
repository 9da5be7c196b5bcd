"""Architectures of models, as settings of a small `TransformerConfig`, without vocabularies."""

from __future__ import annotations

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
# Models that `translane-train` makes, in every arrangement that changes graphs.
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
