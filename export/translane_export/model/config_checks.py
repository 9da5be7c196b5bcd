"""Refuses a config whose fields make no model."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, get_args, get_type_hints

from translane_server.bundle.manifest import MOST_HEADS, MOST_LAYERS, MOST_PIECES, MOST_TOKENS, MOST_WIDTH
from translane_server.core.terminal import shown

if TYPE_CHECKING:
    from translane_export.model.config import TransformerConfig

# The most of each size, so that a number from a file never decides about much memory or time by itself.
_SIZES = {
    "source_vocab_size": MOST_PIECES,
    "target_vocab_size": MOST_PIECES,
    "d_model": MOST_WIDTH,
    "encoder_layers": MOST_LAYERS,
    "decoder_layers": MOST_LAYERS,
    "heads": MOST_HEADS,
    "ffn_size": MOST_WIDTH,
    "max_positions": MOST_TOKENS,
}
_MOST_BUCKETS = 10_000
_MOST_WINDOW = 1_000  # a vector for each distance, and a product for each
_MOST_PLACES = 1 << 18  # of all heads: so many numbers for each position of a sentence
_MOST_FOLLOWING = 1 << 28  # numbers that no file holds, as they follow from sizes: 1 GiB
_CHOICES = ("activation", "norm", "norm_kind", "positions", "tie_embeddings", "attention_normalizer")
_RATES = ("dropout", "attention_dropout", "activation_dropout")
_SWITCHES = (
    "scale_embeddings",
    "embedding_norm",
    "biases",
    "gated",
    "rotary_interleaved",
    "relative_shared",
    "relative_clipped",
    "proximal_bias",
    "proximal_init",
    "exact_window",
)
_SPECIAL_IDS = ("pad_id", "unk_id", "bos_id", "eos_id")


def check_config(config: TransformerConfig) -> None:
    """Raise ValueError naming the field that makes no sense."""
    _check_sizes(config)
    _check_choices(config)
    _check_attention(config)
    _check_relative_positions(config)
    _check_tables(config)
    if config.tie_embeddings == "three-way" and config.source_vocab_size != config.target_vocab_size:
        raise ValueError(
            "tie_embeddings: three-way tying needs one vocabulary, but source_vocab_size is "
            f"{config.source_vocab_size} and target_vocab_size is {config.target_vocab_size}"
        )
    _check_special_ids(config)


def _check_sizes(config: TransformerConfig) -> None:
    for name, most in _SIZES.items():
        _require_int(config, name, minimum=1, maximum=most)
    if config.head_size is not None:
        _require_int(config, "head_size", minimum=1, maximum=MOST_WIDTH)
    elif config.d_model % config.heads:
        raise ValueError(f"d_model: {config.d_model} is not divisible by {config.heads} heads; set head_size")
    if config.value_size is not None:
        _require_int(config, "value_size", minimum=1, maximum=MOST_WIDTH)
    if config.kv_heads is not None:
        groups = _require_int(config, "kv_heads", minimum=1, maximum=MOST_HEADS)
        if config.heads % groups:
            raise ValueError(f"kv_heads: {groups} does not divide {config.heads} heads")
    if config.positions == "sinusoidal" and config.d_model % 2:
        raise ValueError(f"d_model: sinusoidal positions need an even number, not {config.d_model}")


def _check_choices(config: TransformerConfig) -> None:
    hints = get_type_hints(type(config))
    for name in _CHOICES:
        choices = get_args(hints[name])
        if getattr(config, name) not in choices:
            raise ValueError(f"{name}: {shown(getattr(config, name))} is not one of {', '.join(choices)}")
    for name in _RATES:
        rate = _require_number(config, name)
        if not 0 <= rate < 1:
            raise ValueError(f"{name}: {rate} is outside [0, 1)")
    if not 0 < _require_number(config, "layer_norm_eps") < 1:
        raise ValueError(f"layer_norm_eps: {config.layer_norm_eps} is outside (0, 1)")
    for name in _SWITCHES:
        if not isinstance(getattr(config, name), bool):
            raise ValueError(f"{name}: {shown(getattr(config, name))} is not true or false")
    for name in ("attention_biases", "final_norm"):
        if getattr(config, name) is not None and not isinstance(getattr(config, name), bool):
            raise ValueError(f"{name}: {shown(getattr(config, name))} is not true or false")
    names = ["logit_scale", *([] if isinstance(config.attention_scale, bool) else ["attention_scale"])]
    for name in names:
        if not 0 < _require_number(config, name) < math.inf:
            raise ValueError(f"{name}: {getattr(config, name)} is not a finite number above 0")


def _check_attention(config: TransformerConfig) -> None:
    if not 1 < _require_number(config, "rotary_base") < math.inf:
        raise ValueError(f"rotary_base: {config.rotary_base} is not a finite number above 1")
    if config.positions == "rotary" and config.head_dim % 2:
        raise ValueError(f"head_size: rotary positions need an even number, not {config.head_dim}")
    window = _require_int(config, "relative_window", minimum=0, maximum=_MOST_WINDOW)
    if window and config.positions == "rotary":
        raise ValueError(
            "relative_window: relative positions are vectors, or angles as rotary positions are; choose one"
        )
    if config.proximal_init and config.key_value_heads != config.heads:
        raise ValueError("proximal_init: keys cannot start as queries where kv_heads are fewer than heads")
    block = _require_int(config, "block_length", minimum=0, maximum=MOST_TOKENS)
    size = _require_int(config, "window_size", minimum=0, maximum=MOST_TOKENS)
    if block and size:
        raise ValueError("window_size: attention is local by block_length or by window_size; choose one")
    for name in ("look_backward", "look_forward"):
        _require_int(config, name, minimum=0, maximum=MOST_TOKENS)


def _check_relative_positions(config: TransformerConfig) -> None:
    buckets = _require_int(config, "relative_buckets", minimum=0, maximum=_MOST_BUCKETS)
    most = _require_int(config, "relative_max_distance", minimum=1, maximum=MOST_TOKENS)
    if buckets == 0:
        return
    if buckets < 4 or buckets % 2:  # the encoder has half of them for either direction
        raise ValueError(f"relative_buckets: {buckets} is neither 0 nor an even number of at least 4")
    if most <= buckets // 2:
        raise ValueError(f"relative_max_distance: {most} is not above half of {buckets} relative_buckets")


def _check_tables(config: TransformerConfig) -> None:
    """Bound the tables that follow from sizes: a small file could ask for any memory by them."""
    layers = config.encoder_layers + config.decoder_layers
    tables = {"sinusoidal": 2 * config.d_model, "rotary": layers * config.head_dim}
    if (numbers := config.max_positions * tables.get(config.positions, 0)) > _MOST_FOLLOWING:
        raise ValueError(
            f"max_positions: the tables of {config.max_positions:,} {config.positions} positions have {numbers:,}"
            f" numbers, and at most {_MOST_FOLLOWING:,} are supported"
        )
    if not config.relative_window:
        return
    places = config.heads * (2 * config.relative_window + 1)
    if places > _MOST_PLACES:
        raise ValueError(
            f"relative_window: {config.heads:,} heads with {2 * config.relative_window + 1:,} distances each are"
            f" {places:,}, and at most {_MOST_PLACES:,} are supported"
        )
    # Tables of their own are one matrix in a graph, with zeros where a head meets another's table.
    width = config.heads * (config.head_dim + config.value_dim)
    if not config.relative_shared and (numbers := layers * places * width) > _MOST_FOLLOWING:
        raise ValueError(
            f"relative_window: the tables of {config.heads:,} heads have {numbers:,} numbers in graphs, and at most"
            f" {_MOST_FOLLOWING:,} are supported; share them (relative_shared)"
        )


def _check_special_ids(config: TransformerConfig) -> None:
    smallest_vocabulary = min(config.source_vocab_size, config.target_vocab_size)
    owners: dict[int, str] = {}
    for name in _SPECIAL_IDS:
        value = _require_int(config, name, minimum=0)
        if value >= smallest_vocabulary:
            raise ValueError(f"{name}: {value} is outside a vocabulary of {smallest_vocabulary}")
        if name == "bos_id":
            continue
        if value in owners:
            raise ValueError(f"{name}: {value} is already {owners[value]}")
        owners[value] = name
    if config.decoder_start_id is not None:
        start = _require_int(config, "decoder_start_id", minimum=0)
        if start >= config.target_vocab_size:
            raise ValueError(f"decoder_start_id: {start} is outside a vocabulary of {config.target_vocab_size}")
    _check_suppressed_ids(config)


def _check_suppressed_ids(config: TransformerConfig) -> None:
    suppressed = config.suppressed_ids
    if not isinstance(suppressed, tuple):
        raise ValueError(f"suppressed_ids: {shown(suppressed)} is not a tuple of ids")
    for number in suppressed:
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < config.target_vocab_size:
            raise ValueError(f"suppressed_ids: {shown(number)} is not one of {config.target_vocab_size} target ids")
    if config.eos_id in suppressed:
        raise ValueError(f"suppressed_ids: {config.eos_id} is eos_id, and no sentence would end")


def _require_int(config: TransformerConfig, name: str, *, minimum: int, maximum: int = MOST_PIECES) -> int:
    value = getattr(config, name)
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise ValueError(f"{name}: {shown(value)} is not an integer of at least {minimum}")
    if value > maximum:
        raise ValueError(f"{name}: {shown(value)} is above {maximum:,}, the most that is supported")
    return value


def _require_number(config: TransformerConfig, name: str) -> float:
    value = getattr(config, name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name}: {shown(value)} is not a number")
    return value
