"""BART (https://arxiv.org/abs/1910.13461), and what those that came of it have in common.

https://huggingface.co/docs/transformers/model_doc/bart
"""

from __future__ import annotations

from typing import Any

from translane_export.sources import foreign_tokenizers
from translane_export.sources.huggingface import ACTIVATIONS, Architecture
from translane_export.sources.model_settings import ModelSettings
from translane_export.sources.placed_tensors import Names

_ATTENTION = ("q_proj", "k_proj", "v_proj", "out_proj")

# Of Marian, BART, mBART and M2M100 alike.
LAYER_NAMES: dict[str, str] = {
    **{
        f"{side}.layers.*.{ours}": f"model.{side}.layers.*.{theirs}"
        for side in ("encoder", "decoder")
        for ours, theirs in (
            *((f"self_attention.{part}", f"self_attn.{part}") for part in _ATTENTION),
            ("self_attention_residual.norm", "self_attn_layer_norm"),
            ("feed_forward.up_proj", "fc1"),
            ("feed_forward.down_proj", "fc2"),
            ("feed_forward_residual.norm", "final_layer_norm"),
        )
    },
    **{
        f"decoder.layers.*.cross_attention.{part}": f"model.decoder.layers.*.encoder_attn.{part}" for part in _ATTENTION
    },
    "decoder.layers.*.cross_attention_residual.norm": "model.decoder.layers.*.encoder_attn_layer_norm",
}
EMBEDDING_NAMES: Names = {
    "encoder.embedding.tokens": ("model.encoder.embed_tokens", "model.shared"),
    "decoder.embedding.tokens": ("model.decoder.embed_tokens", "model.shared"),
    "output_projection": ("lm_head", "model.decoder.embed_tokens", "model.shared"),
    "output_projection.bias": "final_logits_bias",
    "encoder.embedding.positions.embedding": "model.encoder.embed_positions",
    "decoder.embedding.positions.embedding": "model.decoder.embed_positions",
}
EMBEDDING_NORM_NAMES: Names = {
    "encoder.embedding.norm": "model.encoder.layernorm_embedding",
    "decoder.embedding.norm": "model.decoder.layernorm_embedding",
}
FINAL_NORM_NAMES: Names = {
    "encoder.final_norm": "model.encoder.layer_norm",
    "decoder.final_norm": "model.decoder.layer_norm",
}
VERSIONS = r"model\.(encoder|decoder)\.version"  # fairseq's marks in old conversions


def sizes(config: ModelSettings) -> dict[str, Any]:
    """The fields that all of them read alike."""
    vocabulary, width = config.whole("vocab_size"), config.whole("d_model")
    heads = config.same_whole("encoder_attention_heads", "decoder_attention_heads")
    return {
        "source_vocab_size": vocabulary,
        "target_vocab_size": vocabulary,
        "d_model": width,
        "encoder_layers": config.whole("encoder_layers"),
        "decoder_layers": config.whole("decoder_layers"),
        "heads": config.check_heads("encoder_attention_heads", heads, width),
        "ffn_size": config.same_whole("encoder_ffn_dim", "decoder_ffn_dim"),
        "activation": config.activation("activation_function", ACTIVATIONS),
        "max_positions": config.whole("max_position_embeddings"),
        "positions": "learned",
        "scale_embeddings": config.flag("scale_embedding"),
    }


BART = Architecture(
    model_type="bart",
    title="BART",
    config=lambda config: {**sizes(config), "norm": "post", "embedding_norm": True},
    tokenizer=foreign_tokenizers.bart,
    names={**LAYER_NAMES, **EMBEDDING_NAMES, **EMBEDDING_NORM_NAMES},
    unk_id=3,
    position_offset=2,
    ignored=VERSIONS,
)
