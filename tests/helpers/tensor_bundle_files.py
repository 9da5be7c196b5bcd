"""Writes checkpoints as TensorFlow's files hold them: a sorted table of entries, and numbers beside it."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

DTYPES = {"<f4": 1, "<f8": 2, "<i4": 3, "<i8": 9, "<f2": 19}
MAGIC = 0xDB4775248B80FB57


def write_tensor_bundle(
    prefix: Path, arrays: Mapping[str, np.ndarray], entries: Mapping[str, bytes] | None = None
) -> None:
    """Write the arrays by name. `entries` are values of the table in place of right ones."""
    numbers, values = b"", {"": field(1, 1)}
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        values[name] = entry(DTYPES[array.dtype.str], array.shape, len(numbers), array.nbytes)
        numbers += array.tobytes()
    prefix.with_name(f"{prefix.name}.data-00000-of-00001").write_bytes(numbers)
    values |= entries or {}
    prefix.with_name(f"{prefix.name}.index").write_bytes(
        table([(name.encode(), values[name]) for name in sorted(values)])
    )


def entry(dtype: int, shape: Sequence[int], offset: int, size: int, shard: int = 0, more: bytes = b"") -> bytes:
    """The table's value for a tensor."""
    dimensions = b"".join(nested(2, field(1, dimension)) for dimension in shape)
    return field(1, dtype) + nested(2, dimensions) + field(3, shard) + field(4, offset) + field(5, size) + more


def table(items: Sequence[tuple[bytes, bytes]], size: int = 1000, compression: int = 0) -> bytes:
    """The file: blocks of about `size` bytes, an empty block of filters, the block that lists blocks, and the end."""
    content, listed, block = b"", [], []
    for number, item in enumerate(items):
        block.append(item)
        if sum(len(key) + len(value) for key, value in block) > size or number + 1 == len(items):
            written = blocked(block)
            listed.append((item[0], varint(len(content)) + varint(len(written))))
            content, block = content + written + bytes([compression]) + bytes(4), []
    handles = b""
    for written in (blocked([]), blocked(listed)):
        handles += varint(len(content)) + varint(len(written))
        content += written + bytes(5)
    return content + handles.ljust(40, b"\0") + struct.pack("<Q", MAGIC)


def blocked(items: Sequence[tuple[bytes, bytes]], restart: int = 16) -> bytes:
    """A block: of every key but each sixteenth, what it has in common with the key before it is left out."""
    content, restarts, last = b"", [0], b""
    for number, (key, value) in enumerate(items):
        shared = 0
        if number % restart:
            while shared < min(len(key), len(last)) and key[shared] == last[shared]:
                shared += 1
        elif number:
            restarts.append(len(content))
        content += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        last = key
    return content + b"".join(struct.pack("<I", place) for place in [*restarts, len(restarts)])


def field(number: int, value: int) -> bytes:
    """A field of a protocol buffer that is a whole number."""
    return varint(number << 3) + varint(value)


def nested(number: int, content: bytes) -> bytes:
    """A field of a protocol buffer that is bytes."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(number: int) -> bytes:
    """A whole number as these formats write it: seven bits a byte, the lowest first."""
    written = b""
    while number >= 0x80:
        written, number = written + bytes([number & 0x7F | 0x80]), number >> 7
    return written + bytes([number])
