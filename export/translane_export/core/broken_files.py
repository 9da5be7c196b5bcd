"""Says what is wrong with a file that cannot be read: libraries' own reasons mean nothing to whoever has the file."""

from __future__ import annotations

import re
import struct
import zipfile
import zlib
from pathlib import Path

from translane_export.core.errors import ExportError
from translane_server.core.errors import is_about_memory
from translane_server.core.files import open_regular, parse_json

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
        return _zip_problem(path) if start.startswith(_ZIP) else _pickle_problem(start)
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


def _pickle_problem(start: bytes) -> str:
    return "" if start.startswith(_PICKLE) else f"it is not a {PYTORCH}"


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
