"""The architectures of Hugging Face's that are read: BART and the models that came of it, and T5.

https://huggingface.co/docs/transformers/model_doc/bart, and its neighbours mbart, m2m_100, marian and t5.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from translane_export.core.errors import ExportError
from translane_export.core.file_readers import is_there, read_json
from translane_export.model.config import Activation
from translane_export.model.positions import sinusoid_table
from translane_export.sources import foreign_tokenizers
from translane_export.sources.huggingface import ACTIVATIONS, Architecture
from translane_export.sources.model_settings import ModelSettings
from translane_export.sources.placed_tensors import Names, named, sinusoids
from translane_server.core.terminal import shown

_MARIAN_UNK = 1  # of every model of OPUS-MT
_ATTENTION = {part: part for part in ("q_proj", "k_proj", "v_proj", "out_proj")}
_LAYER = {
    **named("self_attention", "self_attn", _ATTENTION),
    "self_attention_residual.norm": "self_attn_layer_norm",
    "feed_forward.up_proj": "fc1",
    "feed_forward.down_proj": "fc2",
    "feed_forward_residual.norm": "final_layer_norm",
}
_DECODER_LAYER = {
    **_LAYER,
    **named("cross_attention", "encoder_attn", _ATTENTION),
    "cross_attention_residual.norm": "encoder_attn_layer_norm",
}
LAYER_NAMES = {
    **named("encoder.layers.*", "model.encoder.layers.*", _LAYER),
    **named("decoder.layers.*", "model.decoder.layers.*", _DECODER_LAYER),
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
        "heads": config.heads("encoder_attention_heads", heads, width),
        "ffn_size": config.same_whole("encoder_ffn_dim", "decoder_ffn_dim"),
        "activation": config.activation("activation_function", ACTIVATIONS),
        "max_positions": config.whole("max_position_embeddings"),
        "positions": "learned",
        "scale_embeddings": config.flag("scale_embedding"),
    }


# https://arxiv.org/abs/1910.13461.
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

# https://arxiv.org/abs/2001.08210, and mBART-50: BART with pre-norm and languages.
MBART = Architecture(
    model_type="mbart",
    title="mBART",
    config=lambda config: {**sizes(config), "norm": "pre", "embedding_norm": True},
    tokenizer=foreign_tokenizers.mbart,
    names={**LAYER_NAMES, **EMBEDDING_NAMES, **EMBEDDING_NORM_NAMES, **FINAL_NORM_NAMES},
    unk_id=3,
    position_offset=2,
    ignored=VERSIONS,
)


def _m2m100_positions(config: ModelSettings) -> Tensor:
    """The position vectors [positions, M]; the first is of the number after the padding id."""
    first = config.whole("pad_token_id") + 1
    return sinusoids(first, config.whole("max_position_embeddings"), config.whole("d_model"))


# https://arxiv.org/abs/2010.11125, and NLLB-200, https://arxiv.org/abs/2207.04672.
M2M100 = Architecture(
    model_type="m2m_100",
    title="M2M100 (NLLB-200)",
    config=lambda config: {
        **sizes(config),
        "norm": "pre",
        "scale_embeddings": config.flag("scale_embedding", default=True),
    },
    tokenizer=foreign_tokenizers.m2m100,
    names={**LAYER_NAMES, **EMBEDDING_NAMES, **FINAL_NORM_NAMES},
    unk_id=3,
    positions=_m2m100_positions,
    ignored=rf"{VERSIONS}|model\.(encoder|decoder)\.embed_positions\.weights",
)


def _marian_positions(config: ModelSettings) -> Tensor:
    """The paper's sinusoids [positions, M] with all sines before all cosines."""
    width = config.whole("d_model")
    table = sinusoid_table(config.whole("max_position_embeddings"), width)
    return torch.cat([table[:, 0::2], table[:, 1::2]], dim=1)[:, :width]


def _marian_config(config: ModelSettings) -> dict[str, Any]:
    fields = {**sizes(config), "norm": "post"}
    vocabulary = config.path.with_name("vocab.json")
    if is_there(vocabulary):
        unknown, size = read_json(vocabulary).get("<unk>", _MARIAN_UNK), fields["source_vocab_size"]
        if type(unknown) is not int or not 0 <= unknown < size:
            raise ExportError(
                f"{vocabulary}: <unk> is {shown(unknown)}, and an id is a whole number from 0 to {size - 1}"
            )
        fields["unk_id"] = unknown
    return {**fields, "target_vocab_size": config.whole("decoder_vocab_size", fields["source_vocab_size"])}


# the Transformer of OPUS-MT, https://aclanthology.org/2020.eamt-1.61, converted from Marian.
MARIAN = Architecture(
    model_type="marian",
    title="MarianMT",
    config=_marian_config,
    tokenizer=foreign_tokenizers.marian,
    names={**LAYER_NAMES, **EMBEDDING_NAMES},
    unk_id=_MARIAN_UNK,
    decoder_start_key="pad_token_id",
    positions=_marian_positions,
    ignored=VERSIONS,
)

# T5 (https://arxiv.org/abs/1910.10683), its version 1.1 with FLAN-T5, and mT5 (https://arxiv.org/abs/2010.11934)

_T5_ATTENTION = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "out_proj": "o"}
_T5_GATED = "gated-"
_T5_FEED_FORWARD: dict[str, Activation] = {
    **ACTIVATIONS,
    **{_T5_GATED + name: activation for name, activation in ACTIVATIONS.items()},
    f"{_T5_GATED}gelu": "gelu_tanh",
}
_DEFAULT_POSITIONS = 512  # what they are trained with; relative positions have no limit of their own


def _stack_names(side: str, feed_forward: int) -> Names:
    """Names of the encoder's or the decoder's parts, whose feed-forward network has this number in a block."""
    dense = f"{feed_forward}.DenseReluDense"
    layer = {
        **named("self_attention", "0.SelfAttention", _T5_ATTENTION),
        "self_attention_residual.norm": "0.layer_norm",
        "feed_forward.gate_proj": f"{dense}.wi_0",
        "feed_forward.down_proj": f"{dense}.wo",
        "feed_forward_residual.norm": f"{feed_forward}.layer_norm",
    }
    if side == "decoder":
        layer |= named("cross_attention", "1.EncDecAttention", _T5_ATTENTION)
        layer["cross_attention_residual.norm"] = "1.layer_norm"
    blocks = f"{side}.block.*.layer"
    return {
        **named(f"{side}.layers.*", blocks, layer),
        f"{side}.layers.*.feed_forward.up_proj": (f"{blocks}.{dense}.wi_1", f"{blocks}.{dense}.wi"),
        f"{side}.final_norm": f"{side}.final_layer_norm",
        f"{side}.embedding.tokens": (f"{side}.embed_tokens", "shared"),
        f"{side}.relative_positions": f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias",
    }


def _t5_sizes(config: ModelSettings) -> dict[str, Any]:
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
        "activation": config.activation("feed_forward_proj", _T5_FEED_FORWARD, "relu"),
        "gated": str(config.get("feed_forward_proj")).startswith(_T5_GATED),
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
    return {**_t5_sizes(config), "logit_scale": config.whole("d_model") ** -0.5 if scales else 1.0}


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
MT5 = dataclasses.replace(T5, model_type="mt5", title="mT5", config=_t5_sizes)
