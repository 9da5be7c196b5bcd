"""Tokenizers of Hugging Face's library, read from tokenizer.json or made of a vocabulary and its merges."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tokenizers

from translane_export.broken_files import broken_file
from translane_export.errors import ExportError
from translane_export.tokenizer_files import TokenizerFiles
from translane_server.bundle.manifest import JsonTokenizerEntry
from translane_server.core.files import check_regular, read_regular
from translane_server.core.terminal import printable
from translane_server.text.json_tokenizer import is_of_tokenizers

TOKENIZER_JSON = "tokenizer.json"
_MOST_OF_A_REASON = 200  # characters; the library may quote half a file
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
        made = tokenizers.Tokenizer.from_buffer(read_regular(path))
        ids: dict[str, int] = made.get_vocab(with_added_tokens=True)
    except BaseException as error:
        if not is_of_tokenizers(error):
            raise
        reason = printable(str(error), _MOST_OF_A_REASON)
        raise broken_file(path, TOKENIZER_JSON, f"it is not a tokenizer.json: {reason}") from None
    return ids


def byte_level(vocabulary: Path, merges: Path, *, add_prefix_space: bool) -> bytes:
    """The content of a tokenizer.json for a byte-level BPE in two files. Raises ExportError."""
    try:
        for path in (vocabulary, merges):
            check_regular(path)
        model = tokenizers.models.BPE.from_file(str(vocabulary), str(merges))
    except BaseException as error:
        if not is_of_tokenizers(error):
            raise
        reason = printable(str(error), _MOST_OF_A_REASON)
        raise ExportError(f"{vocabulary} and {merges.name}: they are no vocabulary and merges: {reason}") from None
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    special = [name for name in (*FAIRSEQ_FIRST, "<mask>") if tokenizer.token_to_id(name) is not None]
    tokenizer.add_special_tokens(special)
    return tokenizer.to_str().encode()
