"""Reads files of common kinds, and says in one sentence what is wrong with a file that cannot be read.

Libraries' own reasons mean nothing to whoever has the file.
"""

from __future__ import annotations

import os
import re
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import sentencepiece
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from translane_export.core.errors import ExportError
from translane_server.core.errors import is_about_memory
from translane_server.core.files import MOST_DESCRIPTION_BYTES, check_regular, open_regular, parse_json, read_regular


def read_text(path: Path) -> str:
    """Return the text of a file of up to 64 MiB. Raises ExportError naming the file."""
    try:
        return read_regular(path, MOST_DESCRIPTION_BYTES).decode()
    except OSError as error:
        raise broken_file(path, "text file", f"it cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise broken_file(path, "text file", "it is not UTF-8 text") from None


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file. Raises ExportError naming the file."""
    try:
        content = parse_json(read_regular(path, MOST_DESCRIPTION_BYTES))
    except OSError as error:
        raise broken_file(path, "JSON file", f"it cannot be read: {error.strerror}") from None
    except ValueError as error:
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


PYTORCH, SAFETENSORS = "PyTorch file", "safetensors file"

_START = 512  # bytes that tell what a file is
_GIT_LFS = b"version https://git-lfs"
_HTML = re.compile(rb"\s*<(!doctype html|html)\b", re.IGNORECASE)
_ZIP, _PICKLE = b"PK", b"\x80"
_LONGEST_HEADER = 100_000_000  # bytes, as the library has it
_LENGTH = 8  # bytes at the start of a safetensors file that say how long its header is


# What PyTorch's reader raises for a file that is cut off or damaged, in which way depends on where.
UNREADABLE = (
    *(OSError, EOFError, RuntimeError, ValueError, LookupError, AttributeError, TypeError, ArithmeticError),
    *(AssertionError, struct.error, zipfile.BadZipFile, zlib.error, MemoryError),
)


def unreadable_file(path: Path, kind: str, error: Exception) -> ExportError:
    """What to raise about the file at `path`, whose reader has raised `error`, one of `UNREADABLE`."""
    if is_about_memory(error):
        return ExportError(f"{path}: there is not enough memory to read it, or it is damaged")
    return broken_file(path, kind, "it is cut off or damaged")


def broken_file(path: Path, kind: str, otherwise: str = "it is damaged") -> ExportError:
    """What to raise about the file at `path`, which should be a `kind` and is not read as one.

    `otherwise` is said of a file that looks as it should.
    """
    return ExportError(f"{path}: {_problem(path, kind) or otherwise}")


def _problem(path: Path, kind: str) -> str:
    try:
        with open_regular(path) as file:
            start = file.read(_START)
    except FileNotFoundError:
        return "the file is missing"
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    if not start:
        return f"it is empty, not a {kind}"
    if start.startswith(_GIT_LFS):
        return f"it is a pointer of git-lfs, not the {kind} itself, which git lfs pull fetches"
    if _HTML.match(start):
        return f"it is an HTML page, as failed downloads leave behind, not a {kind}"
    if kind == PYTORCH:
        if start.startswith(_ZIP):
            return _zip_problem(path)
        return "" if start.startswith(_PICKLE) else f"it is not a {PYTORCH}"
    return _safetensors_problem(path, start) if kind == SAFETENSORS else ""


def _zip_problem(path: Path) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            names = {name.rpartition("/")[2] for name in archive.namelist()}
    except zipfile.BadZipFile:
        return f"it is cut off: the end of the {PYTORCH} is missing"
    except UNREADABLE:
        return "it is a damaged zip archive"
    if "data.pkl" not in names:
        return f"it is a zip archive of other things, not a {PYTORCH}"
    return "it is a TorchScript program, not tensors" if "constants.pkl" in names else ""


def _safetensors_problem(path: Path, start: bytes) -> str:
    size, header = path.stat().st_size, int.from_bytes(start[:_LENGTH], "little")
    if start[_LENGTH : _LENGTH + 1] not in (b"{", b""):
        return f"it is not a {SAFETENSORS}"
    if size < _LENGTH + header:
        return f"it is cut off: it has {size:,} bytes, and its header alone takes {_LENGTH + header:,}"
    if header > _LONGEST_HEADER:
        return f"its header takes {header:,} bytes, and {_LONGEST_HEADER:,} is the most that is read"
    with open_regular(path) as file:
        content = file.read(_LENGTH + header)[_LENGTH:]
    try:
        ends = [entry["data_offsets"][1] for name, entry in parse_json(content).items() if name != "__metadata__"]
        whole = _LENGTH + header + max(ends, default=0)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        return "its header is damaged"
    if size != whole:
        how = "cut off" if size < whole else "damaged"
        return f"it is {how}: it has {size:,} bytes, and its header tells of {whole:,}"
    return "its header is damaged"


_TYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def check_weight(tensor: Tensor, where: str) -> None:
    """Refuse a tensor that no weight is: complex numbers, truth values, numbers of 8 bits, tensors without numbers.

    Numbers of 8 bits mean something only with scales that lie elsewhere.
    """
    if kind := _unlike_weights(tensor):
        raise ExportError(f"{where} is {kind}, and weights are dense tensors of float32, float16, bfloat16 or float64")


def as_linear(tensor: Tensor, shape: torch.Size) -> Tensor:
    """Return the weight of a 1×1 convolution [out, in, 1] as the linear layer's [out, in], on the same memory.

    Both compute the same at each position. A tensor that does not become `shape` is returned as it is.
    """
    return tensor.squeeze(-1) if len(shape) == 2 and tensor.shape == (*shape, 1) else tensor


def _unlike_weights(tensor: Tensor) -> str:
    """What is different about a tensor that is no weight; empty for others. Looks at no numbers."""
    if tensor.is_meta:
        return "empty (on the device meta)"
    if tensor.is_nested:
        return "a nested tensor"
    if tensor.layout is not torch.strided:
        return f"sparse ({_name(tensor.layout)})"
    if tensor.is_quantized:
        return f"quantized ({_name(tensor.dtype)})"
    if tensor.device.type != "cpu":
        return f"on the device {tensor.device.type}"
    if tensor.dtype not in _TYPES:
        return _name(tensor.dtype)
    if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        return f"{list(tensor.shape)} by repeating fewer numbers"
    return ""


def _name(kind: object) -> str:
    return str(kind).removeprefix("torch.")
