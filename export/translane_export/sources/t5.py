"""T5 (https://arxiv.org/abs/1910.10683), its version 1.1 with FLAN-T5, and mT5 (https://arxiv.org/abs/2010.11934).

https://huggingface.co/docs/transformers/model_doc/t5
"""

from __future__ import annotations

import dataclasses
from typing import Any

from translane_export.model.config import Activation
from translane_export.sources import foreign_tokenizers
from translane_export.sources.huggingface import ACTIVATIONS, Architecture
from translane_export.sources.model_settings import ModelSettings
from translane_export.sources.placed_tensors import Names, named

_ATTENTION = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "out_proj": "o"}
_GATED = "gated-"
_FEED_FORWARD: dict[str, Activation] = {
    **ACTIVATIONS,
    **{_GATED + name: activation for name, activation in ACTIVATIONS.items()},
    f"{_GATED}gelu": "gelu_tanh",
}
_DEFAULT_POSITIONS = 512  # what they are trained with; relative positions have no limit of their own


def _stack_names(side: str, feed_forward: int) -> Names:
    """Names of the encoder's or the decoder's parts, whose feed-forward network has this number in a block."""
    dense = f"{feed_forward}.DenseReluDense"
    layer = {
        **named("self_attention", "0.SelfAttention", _ATTENTION),
        "self_attention_residual.norm": "0.layer_norm",
        "feed_forward.gate_proj": f"{dense}.wi_0",
        "feed_forward.down_proj": f"{dense}.wo",
        "feed_forward_residual.norm": f"{feed_forward}.layer_norm",
    }
    if side == "decoder":
        layer |= named("cross_attention", "1.EncDecAttention", _ATTENTION)
        layer["cross_attention_residual.norm"] = "1.layer_norm"
    blocks = f"{side}.block.*.layer"
    return {
        **named(f"{side}.layers.*", blocks, layer),
        f"{side}.layers.*.feed_forward.up_proj": (f"{blocks}.{dense}.wi_1", f"{blocks}.{dense}.wi"),
        f"{side}.final_norm": f"{side}.final_layer_norm",
        f"{side}.embedding.tokens": (f"{side}.embed_tokens", "shared"),
        f"{side}.relative_positions": f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias",
    }


def _config(config: ModelSettings) -> dict[str, Any]:
    vocabulary, layers = config.whole("vocab_size"), config.whole("num_layers")
    return {
        "source_vocab_size": vocabulary,
        "target_vocab_size": vocabulary,
        "d_model": config.whole("d_model"),
        "encoder_layers": layers,
        "decoder_layers": config.whole("num_decoder_layers", layers),
        "heads": config.whole("num_heads"),
        "head_size": config.whole("d_kv"),
        "ffn_size": config.whole("d_ff"),
        "activation": config.activation("feed_forward_proj", _FEED_FORWARD, "relu"),
        "gated": str(config.get("feed_forward_proj")).startswith(_GATED),
        "norm": "pre",
        "norm_kind": "rms",
        "layer_norm_eps": config.number("layer_norm_epsilon", 1e-6),
        "biases": False,
        "positions": "none",
        "max_positions": config.whole("n_positions", _DEFAULT_POSITIONS),
        "relative_buckets": config.whole("relative_attention_num_buckets"),
        "relative_max_distance": config.whole("relative_attention_max_distance", 128),
        "attention_scale": False,
        "scale_embeddings": False,
    }


def _t5_config(config: ModelSettings) -> dict[str, Any]:
    """T5 1.0 scales what it projects; untied embeddings, or a flag of later releases, tell 1.1."""
    scales = config.flag("scale_decoder_outputs", config.flag("tie_word_embeddings", default=True))
    return {**_config(config), "logit_scale": config.whole("d_model") ** -0.5 if scales else 1.0}


T5 = Architecture(
    model_type="t5",
    title="T5",
    config=_t5_config,
    tokenizer=foreign_tokenizers.t5,
    names={
        **_stack_names("encoder", 1),
        **_stack_names("decoder", 2),
        "output_projection": ("lm_head", "shared"),
    },
    unk_id=2,
    decoder_start_key="pad_token_id",
    ignored=r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",
)
MT5 = dataclasses.replace(T5, model_type="mt5", title="mT5", config=_config)
