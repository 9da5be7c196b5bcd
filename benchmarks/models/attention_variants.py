"""Models of random weights that differ in what attention and norms are composed of, exported once and kept.

Each has two layers a stack of the base model's width, and a vocabulary that is as large beside them as 32,000 pieces
are beside six layers: so an operator's share of a step is about that of a whole base model.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from benchmarks.models.random_bundles import export_random
from translane_export.model import TransformerConfig
from translane_server.bundle import Bundle, load_bundle
from translane_server.manifest import SCHEMA_VERSION

SOURCE_CAPACITY, TARGET_CAPACITY = 64, 256  # tokens
SIZES: dict[str, Any] = {
    "source_vocab_size": 10_000,
    "target_vocab_size": 10_000,
    "d_model": 512,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "heads": 8,
    "ffn_size": 2048,
    "tie_embeddings": "none",  # random weights that are tied repeat the token they are fed
}
PLAIN = "plain"
VARIANTS: dict[str, dict[str, Any]] = {
    PLAIN: {},
    "relative vectors, window 16": {"relative_window": 16},
    "relative vectors, window 16, by head": {"relative_window": 16, "relative_shared": False},
    "relative vectors, window 4, not clipped": {"relative_window": 4, "relative_clipped": False},
    "proximal bias": {"proximal_bias": True},
    "ALiBi": {"positions": "alibi"},
    "T5's 32 buckets": {"positions": "none", "relative_buckets": 32},
    "rotary": {"positions": "rotary"},
    "block-local, 32": {"block_length": 32},
    "windows of 32": {"window_size": 32},
    "windows of 32, exact": {"window_size": 32, "exact_window": True},
    "softmax₁": {"attention_normalizer": "softmax1"},
    "2 heads of keys for 8": {"kv_heads": 2},
    "1 head of keys for 8": {"kv_heads": 1},
    "d_v = 32, d_k = 64": {"value_size": 32},
    "d_v = 64, d_k = 32": {"head_size": 32, "value_size": 64},
    "batch norm": {"norm_kind": "batch"},
    "RMS norm": {"norm_kind": "rms"},
}


def bundle_of(name: str, folder: Path, sizes: dict[str, Any] = SIZES) -> Bundle:
    """The fp32 bundle of a variant, made in `folder` where it is not there yet."""
    config = TransformerConfig(**{**sizes, **VARIANTS[name]})
    key = json.dumps([config.to_dict(), SCHEMA_VERSION, SOURCE_CAPACITY, TARGET_CAPACITY])
    output = folder / f"attention-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    if not (output / "manifest.json").is_file():
        print(f"exporting {name} …", flush=True)
        export_random(
            config,
            output,
            max_source_tokens=SOURCE_CAPACITY,
            max_target_tokens=TARGET_CAPACITY,
            default_max_length=TARGET_CAPACITY,
        )
    return load_bundle(output)


def row_bytes(bundle: Bundle) -> int:
    """Bytes of a row's keys and values in one layer, for so many tokens on both sides as a row has room for."""
    architecture, limits = bundle.manifest.architecture, bundle.manifest.limits
    numbers = 2 * architecture.key_value_heads * architecture.head_size  # of a token
    return 4 * numbers * (limits.source_tokens + limits.target_tokens)
