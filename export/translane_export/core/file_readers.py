"""Reads files of common kinds. A file that cannot be read raises an ExportError of one sentence."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import sentencepiece
from safetensors import SafetensorError, safe_open
from torch import Tensor

from translane_export.core.broken_files import SAFETENSORS, UNREADABLE, broken_file
from translane_export.core.errors import ExportError
from translane_server.core.files import MOST_DESCRIPTION_BYTES, check_regular, parse_json, read_regular


def read_text(path: Path) -> str:
    """Return the text of a file of up to 64 MiB. Raises ExportError naming the file."""
    try:
        return read_regular(path, MOST_DESCRIPTION_BYTES).decode()
    except (OSError, UnicodeDecodeError):
        raise broken_file(path, "text file", "it is not UTF-8 text") from None


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file. Raises ExportError naming the file."""
    try:
        content = parse_json(read_regular(path, MOST_DESCRIPTION_BYTES))
    except (OSError, ValueError) as error:
        raise broken_file(path, "JSON file", f"it is not JSON ({error})") from None
    if not isinstance(content, dict):
        raise ExportError(f"{path}: it is not a JSON object")
    return content


def read_json_if_any(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file; an empty one where there is no such file. Raises ExportError."""
    return read_json(path) if is_there(path) else {}


def is_there(path: Path) -> bool:
    """Whether anything has this name: a pipe or a broken link in place of a file is refused, and not passed over."""
    return os.path.lexists(path)


def read_safetensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors of a safetensors file by name, memory-mapped, and its header's notes. Raises ExportError."""
    try:
        check_regular(path)
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (safe_open is no mapping)
            return tensors, file.metadata() or {}
    except (SafetensorError, *UNREADABLE):
        raise broken_file(path, SAFETENSORS) from None


def load_sentencepiece(path: Path) -> sentencepiece.SentencePieceProcessor:
    """Load a SentencePiece model, whose pieces are UTF-8. Raises ExportError naming the file."""
    processor = sentencepiece.SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(read_regular(path))
        ids_of_pieces(processor)
    except (OSError, RuntimeError, UnicodeDecodeError):
        raise broken_file(path, "SentencePiece model", "it is not a SentencePiece model") from None
    return processor


def ids_of_pieces(model: sentencepiece.SentencePieceProcessor) -> dict[str, int]:
    """Return SentencePiece's own ids by piece."""
    return {model.id_to_piece(number): number for number in range(len(model))}
