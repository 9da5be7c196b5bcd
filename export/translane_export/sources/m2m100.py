"""M2M100 (https://arxiv.org/abs/2010.11125) and NLLB-200 (https://arxiv.org/abs/2207.04672).

https://huggingface.co/docs/transformers/model_doc/m2m_100
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from translane_export import foreign_tokenizers
from translane_export.foreign_tokenizers import ForeignTokenizer
from translane_export.sources.bart import EMBEDDING_NAMES, FINAL_NORM_NAMES, LAYER_NAMES, VERSIONS, sizes
from translane_export.sources.huggingface import Architecture, ModelConfig, tokenizer_class


def positions(config: ModelConfig) -> Tensor:
    """Return the sinusoids of fairseq [positions, M]: sines, then cosines, and a zero column where M is odd.

    The first position is the one after the padding id, whose own row is zero and never looked up.
    """
    half = config.whole("d_model") // 2
    first = config.whole("pad_token_id") + 1
    numbers = torch.arange(first, first + config.whole("max_position_embeddings"), dtype=torch.float32)
    frequencies = torch.exp(torch.arange(half, dtype=torch.float32) * -(math.log(10000) / (half - 1)))
    angles = numbers[:, None] * frequencies[None, :]  # [positions, M // 2]
    zeros = torch.zeros(len(numbers), config.whole("d_model") % 2)
    return torch.cat([angles.sin(), angles.cos(), zeros], dim=1)


def _tokenizer(folder: Path, config: Mapping[str, Any]) -> ForeignTokenizer:
    kind = foreign_tokenizers.nllb if "Nllb" in tokenizer_class(folder) else foreign_tokenizers.m2m100
    return kind(folder, config)


M2M100 = Architecture(
    model_type="m2m_100",
    title="M2M100 (NLLB-200)",
    config=lambda config: {
        **sizes(config),
        "norm": "pre",
        "scale_embeddings": config.flag("scale_embedding", default=True),
    },
    tokenizer=_tokenizer,
    names={**LAYER_NAMES, **EMBEDDING_NAMES, **FINAL_NORM_NAMES},
    unk_id=3,
    positions=positions,
    ignored=(VERSIONS, r"model\.(encoder|decoder)\.embed_positions\.weights"),
)
