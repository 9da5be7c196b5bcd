"""MarianMT: the Transformer of OPUS-MT (https://aclanthology.org/2020.eamt-1.61), converted from Marian.

https://huggingface.co/docs/transformers/model_doc/marian
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from translane_export.errors import ExportError
from translane_export.file_readers import is_there, read_json
from translane_export.sources import foreign_tokenizers
from translane_export.sources.bart import EMBEDDING_NAMES, LAYER_NAMES, VERSIONS, sizes
from translane_export.sources.huggingface import Architecture
from translane_export.sources.model_settings import ModelSettings
from translane_server.core.terminal import shown

_UNK = 1  # of every model of OPUS-MT


def positions(config: ModelSettings) -> Tensor:
    """The paper's sinusoids [positions, M] with all sines before all cosines, rounded to float32 at the end."""
    width = config.whole("d_model")
    even = torch.arange(0, width, 2, dtype=torch.float64)  # [M / 2]
    numbers = torch.arange(config.whole("max_position_embeddings"), dtype=torch.float64)
    angles = numbers[:, None] / 10000.0 ** (even / width)  # [positions, M / 2]
    return torch.cat([angles.sin(), angles[:, : width // 2].cos()], dim=1).float()


def _config(config: ModelSettings) -> dict[str, Any]:
    fields = {**sizes(config), "norm": "post"}
    vocabulary = config.path.with_name("vocab.json")
    if is_there(vocabulary):
        unknown, size = read_json(vocabulary).get("<unk>", _UNK), fields["source_vocab_size"]
        if type(unknown) is not int or not 0 <= unknown < size:
            raise ExportError(
                f"{vocabulary}: <unk> is {shown(unknown)}, and an id is a whole number from 0 to {size - 1}"
            )
        fields["unk_id"] = unknown
    return {**fields, "target_vocab_size": config.whole("decoder_vocab_size", fields["source_vocab_size"])}


MARIAN = Architecture(
    model_type="marian",
    title="MarianMT",
    config=_config,
    tokenizer=foreign_tokenizers.marian,
    names={**LAYER_NAMES, **EMBEDDING_NAMES},
    unk_id=_UNK,
    decoder_start_key="pad_token_id",
    positions=positions,
    ignored=VERSIONS,
)
