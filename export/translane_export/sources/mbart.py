"""mBART (https://arxiv.org/abs/2001.08210) and mBART-50: BART with pre-norm and languages.

https://huggingface.co/docs/transformers/model_doc/mbart
"""

from __future__ import annotations

from translane_export.sources import foreign_tokenizers
from translane_export.sources.bart import (
    EMBEDDING_NAMES,
    EMBEDDING_NORM_NAMES,
    FINAL_NORM_NAMES,
    LAYER_NAMES,
    VERSIONS,
    sizes,
)
from translane_export.sources.huggingface import Architecture

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
