"""mBART (https://arxiv.org/abs/2001.08210) and mBART-50: BART with pre-norm and languages.

https://huggingface.co/docs/transformers/model_doc/mbart
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from translane_export import foreign_tokenizers
from translane_export.foreign_tokenizers import ForeignTokenizer
from translane_export.sources.bart import (
    EMBEDDING_NAMES,
    EMBEDDING_NORM_NAMES,
    FINAL_NORM_NAMES,
    LAYER_NAMES,
    VERSIONS,
    sizes,
)
from translane_export.sources.huggingface import Architecture, tokenizer_class


def _tokenizer(folder: Path, config: Mapping[str, Any]) -> ForeignTokenizer:
    kind = foreign_tokenizers.mbart50 if "MBart50" in tokenizer_class(folder) else foreign_tokenizers.mbart
    return kind(folder, config)


MBART = Architecture(
    model_type="mbart",
    title="mBART",
    config=lambda config: {**sizes(config), "norm": "pre", "embedding_norm": True},
    tokenizer=_tokenizer,
    names={**LAYER_NAMES, **EMBEDDING_NAMES, **EMBEDDING_NORM_NAMES, **FINAL_NORM_NAMES},
    unk_id=3,
    position_offset=2,
    ignored=(VERSIONS,),
)
