"""Reads files of common kinds. A file that cannot be read raises an ExportError of one sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import sentencepiece
from safetensors import SafetensorError, safe_open
from torch import Tensor

from translane_export.broken_files import SAFETENSORS, broken_file
from translane_export.errors import ExportError


def read_text(path: Path) -> str:
    """Return the text of a file. Raises ExportError naming the file."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise broken_file(path, "text file", "it is not UTF-8 text") from None


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file. Raises ExportError naming the file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise broken_file(path, "JSON file", f"it is not JSON ({error})") from None
    if not isinstance(content, dict):
        raise ExportError(f"{path}: it is not a JSON object")
    return content


def read_json_if_any(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file; an empty one where there is no such file. Raises ExportError."""
    return read_json(path) if path.is_file() else {}


def read_safetensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors of a safetensors file by name, memory-mapped, and its header's notes. Raises ExportError."""
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (safe_open is no mapping)
            return tensors, file.metadata() or {}
    except (OSError, SafetensorError, ValueError, RuntimeError):
        raise broken_file(path, SAFETENSORS) from None


def load_sentencepiece(path: Path) -> sentencepiece.SentencePieceProcessor:
    """Load a SentencePiece model. Raises ExportError naming the file."""
    processor = sentencepiece.SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(path.read_bytes())
    except (OSError, RuntimeError):
        raise broken_file(path, "SentencePiece model", "it is not a SentencePiece model") from None
    return processor
