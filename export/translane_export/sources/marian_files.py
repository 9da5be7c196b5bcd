"""Reads the files that Marian writes, as data: arrays of a NumPy archive (.npz), and the YAML of settings and of ids.

An .npz file is a zip archive of .npy files. Members have to be stored as they are, as `numpy.savez` and Marian store
them: so no array is larger than the file is, and none is a pickle.
https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html

A vocabulary is YAML, too, with a line for each piece. It is read without PyYAML, which takes the pieces ``no`` and
``on`` for truth values.
"""

from __future__ import annotations

import io
import math
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from numpy.lib import format as npy
from torch import Tensor

from translane_export.core.errors import ExportError
from translane_export.core.file_readers import UNREADABLE, broken_file
from translane_server.core.files import open_regular
from translane_server.core.terminal import shown

_NPZ = "NumPy archive (.npz)"
_TYPES = {"<f4", "<f2", "<f8", "|i1", "|u1"}
_MOST_DIMENSIONS = 8
_LONGEST_HEADER = 10_000  # bytes, as the library has it


def read_npz(path: Path) -> dict[str, Tensor]:
    """Return the arrays of `path` by name, as tensors.

    Raises:
        ExportError: the file is missing, damaged or no NumPy archive, or has anything but plain numbers of float32,
            float16, float64, int8 and uint8, in C order and not compressed.
    """
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            if any(member.compress_type != zipfile.ZIP_STORED for member in members):
                raise ExportError(
                    f"{path}: its arrays are compressed, which is not supported; save it with numpy.savez"
                )
            if sum(member.file_size for member in members) > path.stat().st_size:
                raise ExportError(f"{path}: it is damaged: its arrays take more bytes than the file has")
            arrays: dict[str, Tensor] = {}
            for member in members:
                name = member.filename.removesuffix(".npy")
                if name in arrays:
                    raise ExportError(f"{path}: it has the array {shown(name)} twice")
                arrays[name] = _array(archive.read(member), f"{path}: the array {shown(name)}")
            return arrays
    except (*UNREADABLE, NotImplementedError) as error:
        raise broken_file(path, _NPZ, f"it is damaged, or no {_NPZ}") from error


def _array(content: bytes, where: str) -> Tensor:
    """The tensor of an .npy file."""
    file = io.BytesIO(content)
    version = npy.read_magic(file)
    read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}.get(version)
    if read is None:
        raise ExportError(f"{where} has version {version[0]}.{version[1]} of NumPy's format, and 1.0 and 2.0 are read")
    shape, fortran_order, dtype = read(file, max_header_size=_LONGEST_HEADER)
    if dtype.hasobject or dtype.str not in _TYPES:
        raise ExportError(
            f"{where} holds {shown(dtype.str)}, and only numbers of float32, float16 and float64 are read"
        )
    if fortran_order or len(shape) > _MOST_DIMENSIONS:
        raise ExportError(f"{where} is stored by columns or has more than {_MOST_DIMENSIONS} dimensions")
    start, size = file.tell(), math.prod(shape)
    if size * dtype.itemsize != len(content) - start:
        raise ExportError(f"{where} is {list(shape)}, and has {len(content) - start:,} bytes")
    numbers = np.frombuffer(content, dtype, size, start).reshape(shape)
    return torch.from_numpy(numbers.copy())  # aligned, and writable


_ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "e": "\x1b"}
_ID = re.compile(r"\s*\+?\d{1,18}\s*")
_MOST_CHARACTERS = 1 << 18  # of settings: a model's are some 10,000


class _Loader(yaml.SafeLoader):
    """A loader that refuses references: with them, a small file stands for any number of values."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.MarkedYAMLError(problem_mark=self.peek_event().start_mark)  # type: ignore[no-untyped-call]
        return super().compose_node(parent, index)


# Marian writes 1e-06. YAML 1.1 takes it for text: its numbers have a dot, and a sign after the e.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)[eE][-+]?\d{1,3}$"), list("-+.0123456789")
)


def read_settings(text: str) -> dict[str, Any]:
    """Return the settings of a YAML file by name.

    Raises:
        ValueError: a line is no setting, as the message says with its number; or the text has too many characters.
    """
    if len(text) > _MOST_CHARACTERS:
        raise ValueError(f"it has {len(text):,} characters, and at most {_MOST_CHARACTERS:,} are read")
    try:
        settings = yaml.load(text, _Loader) or {}  # noqa: S506 - a safe one
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ValueError(f"line {line} is no setting") from None
    except (yaml.YAMLError, RecursionError):
        raise ValueError("it is no YAML") from None
    except (ValueError, OverflowError):
        raise ValueError("a value cannot be read") from None
    if not isinstance(settings, dict):
        raise ValueError("line 1 is no setting")
    return {str(name): value for name, value in settings.items()}


def read_ids(text: str) -> dict[str, int]:
    """Return the ids of a vocabulary by piece.

    Raises:
        ValueError: a line is no piece with an id, or a piece is there twice; the message has its number.
    """
    ids: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        piece, colon, id_ = line.strip("\r").rpartition(":")
        if not colon and not line.strip():
            continue
        if not colon or not _ID.fullmatch(id_):
            raise ValueError(f"line {number} is no piece with its id")
        name = _unquoted(piece)
        if name in ids:
            raise ValueError(f"line {number} has a piece of a line before")
        ids[name] = int(id_)
    return ids


def _unquoted(text: str) -> str:
    if len(text) > 1 and text[0] == text[-1] == '"':
        return _ESCAPE.sub(_character, text[1:-1])
    return text[1:-1].replace("''", "'") if len(text) > 1 and text[0] == text[-1] == "'" else text


def _character(escape: re.Match[str]) -> str:
    code = escape[1]
    if len(code) == 1:
        return _ESCAPES.get(code, code)
    number = int(code[1:], 16)
    return chr(number) if number < 0x110000 and not 0xD800 <= number < 0xE000 else "\N{REPLACEMENT CHARACTER}"
