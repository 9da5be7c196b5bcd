"""M2M100 (https://arxiv.org/abs/2010.11125) and NLLB-200 (https://arxiv.org/abs/2207.04672).

https://huggingface.co/docs/transformers/model_doc/m2m_100
"""

from __future__ import annotations

from torch import Tensor

from translane_export.sources import foreign_tokenizers
from translane_export.sources.bart import EMBEDDING_NAMES, FINAL_NORM_NAMES, LAYER_NAMES, VERSIONS, sizes
from translane_export.sources.fairseq import sinusoids
from translane_export.sources.huggingface import Architecture
from translane_export.sources.model_settings import ModelSettings


def positions(config: ModelSettings) -> Tensor:
    """Return the position vectors [positions, M]; the first is of the number after the padding id."""
    first = config.whole("pad_token_id") + 1
    return sinusoids(first, config.whole("max_position_embeddings"), config.whole("d_model"))


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
    positions=positions,
    ignored=rf"{VERSIONS}|model\.(encoder|decoder)\.embed_positions\.weights",
)
