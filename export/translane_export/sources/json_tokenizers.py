"""Tokenizers of Hugging Face's library, read from tokenizer.json or made of a vocabulary and its merges."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tokenizers

from translane_export.broken_files import broken_file
from translane_export.errors import ExportError
from translane_export.tokenizer_files import TokenizerFiles
from translane_server.manifest import JsonTokenizerEntry

TOKENIZER_JSON = "tokenizer.json"
FAIRSEQ_FIRST = ("<s>", "<pad>", "</s>", "<unk>")
"""The pieces that are numbered first in fairseq's vocabularies."""


def json_tokenizer(folder: Path, instead_of: Sequence[str] = ()) -> TokenizerFiles:
    """The tokenizer.json of a folder, for which the files `instead_of` could stand in. Raises ExportError."""
    path = folder / TOKENIZER_JSON
    if not path.is_file():
        raise ExportError(f"checkpoint {folder}: it has no tokenizer: {' or '.join([*instead_of, TOKENIZER_JSON])}")
    return TokenizerFiles(JsonTokenizerEntry(file=TOKENIZER_JSON), {TOKENIZER_JSON: path})


def json_ids(path: Path) -> dict[str, int]:
    """The ids of a tokenizer.json by piece, added tokens among them. Raises ExportError."""
    try:
        ids: dict[str, int] = tokenizers.Tokenizer.from_file(str(path)).get_vocab(with_added_tokens=True)
    except Exception as error:  # noqa: BLE001 (the library raises no more specific one)
        raise broken_file(path, TOKENIZER_JSON, f"it is not a tokenizer.json: {error}") from None
    return ids


def byte_level(vocabulary: Path, merges: Path, *, add_prefix_space: bool) -> bytes:
    """The content of a tokenizer.json for a byte-level BPE in two files. Raises ExportError."""
    try:
        model = tokenizers.models.BPE.from_file(str(vocabulary), str(merges))
    except Exception as error:  # noqa: BLE001
        raise ExportError(f"{vocabulary} and {merges.name}: they are no vocabulary and merges: {error}") from None
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    special = [name for name in (*FAIRSEQ_FIRST, "<mask>") if tokenizer.token_to_id(name) is not None]
    tokenizer.add_special_tokens(special)
    return tokenizer.to_str().encode()
