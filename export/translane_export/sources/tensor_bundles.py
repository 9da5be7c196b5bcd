"""Reads TensorFlow's checkpoint files as data: a table of tensors (``.index``) and their numbers (``.data-…``).

The index is a sorted table in LevelDB's form: blocks of keys and values, a block that lists the blocks, and a footer.
The values are protocol buffers of two kinds: a header, under the empty key, and an entry for each tensor. A file comes
from anywhere, so sizes, counts and offsets are checked before memory is taken.

https://github.com/google/leveldb/blob/main/doc/table_format.md,
https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/protobuf/tensor_bundle.proto
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from translane_export.broken_files import UNREADABLE, broken_file, unreadable_file
from translane_export.errors import ExportError
from translane_server.files import MOST_DESCRIPTION_BYTES, check_regular, read_regular
from translane_server.printable import shown

_KIND = "checkpoint of TensorFlow"
_MAGIC = 0xDB4775248B80FB57
_FOOTER, _TRAILER, _WORD = 48, 5, 4  # bytes
_MOST_ENTRIES, _LONGEST_KEY, _MOST_DIMENSIONS = 100_000, 1_000, 8
_MOST_SHARDS = 1_000
_TYPES = {1: "<f4", 2: "<f8", 14: "bfloat16", 19: "<f2"}
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types of protocol buffers


class _DamagedError(Exception):
    """A file is not as the format has it."""


class _Handle(NamedTuple):
    """Where a block is in the index."""

    offset: int
    size: int


@dataclass(frozen=True)
class _Entry:
    """What the index says of a tensor: `size` bytes at `offset` of the file of a shard."""

    dtype: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    sliced: bool


def read_tensor_bundle(prefix: Path, wanted: str) -> dict[str, Tensor]:
    """Return the tensors of a checkpoint whose names match `wanted` from start to end.

    Args:
        prefix: path of the files without ``.index`` and ``.data-00000-of-00001``.
        wanted: a regular expression of names.

    Raises:
        ExportError: a file is missing or damaged, or a wanted tensor is anything but plain numbers of float32,
            float64, float16 and bfloat16.
    """
    index = prefix.with_name(f"{prefix.name}.index")
    try:
        content = read_regular(index, MOST_DESCRIPTION_BYTES)
        shards, entries = _read_index(content, re.compile(wanted))
    except _DamagedError as error:
        raise broken_file(index, _KIND, str(error)) from None
    except UNREADABLE as error:
        raise unreadable_file(index, _KIND, error) from None
    files = [prefix.with_name(f"{prefix.name}.data-{number:05}-of-{shards:05}") for number in range(shards)]
    taken = [0] * shards
    for name, entry in entries.items():
        where = f"{index}: the tensor {shown(name)}"
        if entry.sliced or entry.dtype not in _TYPES:
            raise ExportError(f"{where} is in slices or no plain numbers of float32, float64, float16 or bfloat16")
        if entry.size != math.prod(entry.shape) * (2 if entry.dtype == 14 else np.dtype(_TYPES[entry.dtype]).itemsize):
            raise ExportError(f"{where} is {list(entry.shape)}, and has {entry.size:,} bytes")
        if entry.shard >= shards:
            raise ExportError(f"{where} is in file {entry.shard}, and there are {shards}")
        taken[entry.shard] += entry.size
    mapped = [_mapped(path, size) if size else None for path, size in zip(files, taken, strict=True)]
    return {name: _tensor(entry, files[entry.shard], mapped[entry.shard], name) for name, entry in entries.items()}


def _mapped(path: Path, taken: int) -> np.memmap[tuple[int], np.dtype[np.uint8]]:
    try:
        size = check_regular(path).st_size
        if size < taken:
            raise broken_file(path, _KIND, f"it is cut off: it has {size:,} bytes, and its index tells of {taken:,}")
        return np.memmap(path, np.uint8, "r")
    except OSError:
        raise broken_file(path, _KIND) from None


def _tensor(entry: _Entry, path: Path, mapped: np.memmap[tuple[int], np.dtype[np.uint8]] | None, name: str) -> Tensor:
    if mapped is None:  # an empty tensor
        return torch.zeros(entry.shape)
    if entry.offset + entry.size > len(mapped):
        raise ExportError(f"{path}: it is cut off: the tensor {shown(name)} ends at byte {entry.offset + entry.size:,}")
    part = np.array(mapped[entry.offset : entry.offset + entry.size])  # a copy, aligned
    if entry.dtype == 14:
        return torch.from_numpy(part).view(torch.bfloat16).reshape(entry.shape)
    return torch.from_numpy(part.view(_TYPES[entry.dtype])).reshape(entry.shape)


def _read_index(content: bytes, wanted: re.Pattern[str]) -> tuple[int, dict[str, _Entry]]:
    """Return how many files have numbers, and the entries of the wanted tensors by name."""
    if len(content) < _FOOTER or struct.unpack("<Q", content[-8:])[0] != _MAGIC:
        raise _DamagedError("it is no index of a checkpoint, or it is cut off")
    at = _handle(content, _handle(content, len(content) - _FOOTER)[1])[0]  # the second: the first lists filters
    shards, count = 0, 0
    entries: dict[str, _Entry] = {}
    for _, value in _block(content, at):
        for key, entry in _block(content, _handle(value, 0)[0]):
            count += 1
            if count > _MOST_ENTRIES:
                raise _DamagedError(f"it has more than {_MOST_ENTRIES:,} tensors")
            if not key:
                shards = _header(entry)
            elif wanted.fullmatch(name := key.decode()):
                if name in entries:
                    raise _DamagedError(f"it has the tensor {shown(name)} twice")
                entries[name] = _entry(entry)
    if not 0 < shards <= _MOST_SHARDS:
        raise _DamagedError("its header is missing or damaged")
    return shards, entries


def _block(content: bytes, handle: _Handle) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a block. A key has the first bytes of the key before it, and some of its own."""
    end = handle.offset + handle.size
    if end + _TRAILER > len(content) - _FOOTER or handle.size < _WORD:
        raise _DamagedError("it is damaged: a block is not within it")
    if content[end]:
        raise _DamagedError("its blocks are compressed, which TensorFlow does not do by itself")
    restarts = struct.unpack_from("<I", content, end - _WORD)[0]
    place, last, key = handle.offset, end - _WORD * (1 + restarts), b""
    if last < place:
        raise _DamagedError("it is damaged: a block has no entries")
    while place < last:
        shared, place = _varint(content, place)
        own, place = _varint(content, place)
        size, place = _varint(content, place)
        if shared > len(key) or shared + own > _LONGEST_KEY or place + own + size > last:
            raise _DamagedError("it is damaged: an entry is not within its block")
        key = key[:shared] + content[place : place + own]
        yield key, content[place + own : place + own + size]
        place += own + size


def _handle(content: bytes, place: int) -> tuple[_Handle, int]:
    """The place of a block as it is written at `place`, and where the writing ends."""
    offset, place = _varint(content, place)
    size, place = _varint(content, place)
    return _Handle(offset, size), place


def _varint(content: bytes, place: int) -> tuple[int, int]:
    """The whole number that is written at `place`, and where the writing ends."""
    number = 0
    for shift in range(0, 64, 7):
        if place >= len(content):
            break
        byte = content[place]
        place += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, place
    raise _DamagedError("it is damaged: a number has no end")


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the numbers and values of a protocol buffer's fields."""
    place = 0
    while place < len(message):
        tag, place = _varint(message, place)
        kind, size = tag & 7, 0
        if kind == _VARINT:
            number, place = _varint(message, place)
            yield tag >> 3, number
            continue
        if kind == _BYTES:
            size, place = _varint(message, place)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise _DamagedError("it is damaged: a field is of no known kind")
        if place + size > len(message):
            raise _DamagedError("it is damaged: a field is cut off")
        yield tag >> 3, message[place : place + size]
        place += size


def _header(message: bytes) -> int:
    """How many files have numbers. They are little-endian, as all processors that train have them."""
    found = dict(_fields(message))
    if found.get(2, 0):
        raise _DamagedError("its numbers are big-endian, and only little-endian ones are read")
    return _whole(found.get(1, 0))


def _entry(message: bytes) -> _Entry:
    found = dict(_fields(message))
    shape = tuple(
        _whole(dict(_fields(_bytes(dimension))).get(1, 0))
        for number, dimension in _fields(_bytes(found.get(2, b"")))
        if number == 2
    )
    if len(shape) > _MOST_DIMENSIONS:
        raise _DamagedError(f"a tensor has more than {_MOST_DIMENSIONS} dimensions")
    dtype, shard, offset, size = (_whole(found.get(number, 0)) for number in (1, 3, 4, 5))
    return _Entry(dtype, shape, shard, offset, size, sliced=7 in found)


def _whole(value: int | bytes) -> int:
    if not isinstance(value, int) or value >= 1 << 62:
        raise _DamagedError("it is damaged: a size is no size")
    return value


def _bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise _DamagedError("it is damaged: a field is of another kind")
    return value
