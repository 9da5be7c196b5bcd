"""Models of random weights, as large as models that people use: sizes to measure with, not translations."""

from __future__ import annotations

from helpers import hugging_face

_BASE = {"d_model": 512, "encoder_layers": 6, "decoder_layers": 6, "encoder_attention_heads": 8}
_BASE |= {"decoder_attention_heads": 8, "encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048}
_END = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 65000, "decoder_start_token_id": 65000}
LARGE = {
    # as opus-mt-zh-en
    "marian": hugging_face.Model(
        "Marian",
        {
            **_BASE,
            **_END,
            "vocab_size": 65001,
            "max_position_embeddings": 512,
            "activation_function": "swish",
            "scale_embedding": True,
        },
        {"bad_words_ids": [[65000]]},
        ends=3.0,
        spread=0.03,
    ),
    # mT5-base's vocabulary and width, with fewer layers
    "mt5": hugging_face.Model(
        "MT5",
        {"vocab_size": 256000, "d_model": 768, "d_kv": 64, "d_ff": 2048, "num_layers": 10, "num_heads": 12}
        | {"tie_word_embeddings": False},
        spread=0.0,
    ),
}
