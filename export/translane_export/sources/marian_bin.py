"""Reads the binary files of Firefox's students: containers of models, whose weights are int8, and shortlists.

All numbers are little-endian. After two counts of 8 bytes, the version and the number of arrays, comes for each array
the length of its name, its type, its number of dimensions and the length of its block; then the names, then the shapes,
then a gap, then the blocks, in the same order. Marian maps such a file into memory, so its blocks are padded.

An array of intgemm8 has int8 values and one float32 after them, which they are divided by. Weights of products are
stored [out, in], though their shape says [in, out]; embeddings are stored as their shape says. What a weight is
multiplied with has a number of its own, WEIGHT_QuantMultA: how many units make 1. That of the output projection is
none_QuantMultA, or has the name of the embeddings or of its own table.

A shortlist (lex.50.50.deen.s2t.bin) has six numbers of 8 bytes: a mark, a checksum, how many of the first target pieces
every translation may use, the most targets of a source piece, and two counts. Then come the offsets of each source
piece's targets, of 8 bytes, and the targets, of 4 bytes.

https://github.com/marian-nmt/marian-dev (src/common/binary.cpp, src/common/types.h),
https://github.com/mozilla/translations (inference/marian-fork/src/data/shortlist.cpp)
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import torch
from torch import Tensor

from translane_export.core.errors import ExportError
from translane_export.core.ranges import FixedUnits, Ranges
from translane_export.int8.calibration import place_in_graphs
from translane_export.model import TransformerConfig
from translane_server.bundle.shortlist import Shortlist
from translane_server.core.files import open_regular, read_regular
from translane_server.core.terminal import shown

_VERSION = 1
_COUNTS, _ENTRY = struct.Struct("<QQ"), struct.Struct("<QQQQ")
_FACTOR = np.dtype("<f4")
_LEAST_FACTOR = 1e-30
_INTGEMM8 = 0x4101
_TYPES: dict[int, np.dtype[Any]] = {
    0x404: np.dtype("<f4"),
    0x402: np.dtype("<f2"),
    0x101: np.dtype("i1"),
    _INTGEMM8: np.dtype("i1"),
}
_MOST_ARRAYS = 10_000
_LONGEST_NAME = 1_000  # bytes
_MOST_DIMENSIONS = 4
_EMBEDDINGS = "Wemb"
_PACKED = ("self_attention.k_proj", "self_attention.v_proj")  # with the queries'
_SHORTLIST_MARK = 0xF11A48D5013417F5
_HEADER = 48  # bytes
_SUMMED_FROM = 16  # bytes: the checksum is of all that follows, in whole words of 8 bytes
_MULTIPLE = 8  # of the tokens of a list
_WORDS_AT_ONCE = 1 << 16
_WORD, _SALT = (1 << 64) - 1, 0x9E3779B9


def is_container(path: Path) -> bool:
    """Whether a file begins as the container does."""
    try:
        with open_regular(path) as file:
            start = file.read(_COUNTS.size)
    except OSError:
        return False
    return len(start) == _COUNTS.size and _COUNTS.unpack(start)[0] == _VERSION


class Container(NamedTuple):
    """The arrays of a file by name, those of int8 as the numbers that they stand for: [in, out] or [V, M].

    ``units`` says of those of int8 what a unit stands for.
    """

    arrays: dict[str, Tensor]
    units: dict[str, float]


def read_container(path: Path) -> Container:
    """Return the arrays of `path`.

    Memory is taken for what the file has, and not for what it says.

    Raises:
        ExportError: the file is missing, damaged or no container, or has an array of another type.
    """
    try:
        with open_regular(path) as file:
            return _read(file, os.fstat(file.fileno()).st_size)
    except OSError as error:
        raise ExportError(f"{path}: it cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ExportError(f"{path}: {error}") from None


def _read(file: BinaryIO, size: int) -> Container:
    version, count = _COUNTS.unpack(_take(file, _COUNTS.size))
    if version != _VERSION:
        raise ValueError(f"it is no container of Marian's of version {_VERSION}")
    if count > _MOST_ARRAYS:
        raise ValueError(f"it says that it has {count:,} arrays, and {_MOST_ARRAYS:,} is the most that is read")
    entries = list(_ENTRY.iter_unpack(_take(file, count * _ENTRY.size)))
    if any(name > _LONGEST_NAME or dimensions > _MOST_DIMENSIONS for name, _, dimensions, _ in entries):
        raise ValueError(
            f"it is damaged: a name is longer than {_LONGEST_NAME:,} bytes, or an array has too many dimensions"
        )
    names = [_take(file, length).rstrip(b"\0").decode() for length, *_ in entries]
    if len(set(names)) < len(names):
        raise ValueError("it has an array twice")
    shapes = [struct.unpack(f"<{rank}i", _take(file, 4 * rank)) for _, _, rank, _ in entries]
    (gap,) = struct.unpack("<Q", _take(file, 8))
    if gap + sum(length for *_, length in entries) != size - file.tell():
        raise ValueError(f"it is cut off or damaged: its {size:,} bytes are not as many as it says")
    file.seek(gap, os.SEEK_CUR)
    found = Container({}, {})
    for name, shape, (_, kind, _, length) in zip(names, shapes, entries, strict=True):
        found.arrays[name], unit = _numbers(name, shape, kind, _take(file, length))
        if kind == _INTGEMM8:
            found.units[name] = unit
    return found


def _take(file: BinaryIO, size: int) -> bytes:
    """The next bytes; a length that the file says is no reason for memory before the file has as many."""
    left = os.fstat(file.fileno()).st_size - file.tell()
    content = file.read(size) if size <= left else b""
    if len(content) < size:
        raise ValueError("it is cut off or damaged, or no container of Marian's")
    return content


def _numbers(name: str, shape: tuple[int, ...], kind: int, block: bytes) -> tuple[Tensor, float]:
    """Return an array, and what a unit of it stands for."""
    dtype = _TYPES.get(kind)
    if dtype is None:
        raise ValueError(
            f"the array {shown(name)} is of the type {kind:#x}, and float32, float16 and intgemm8 are read"
        )
    count = math.prod(shape)
    needed = count * dtype.itemsize + _FACTOR.itemsize * (kind == _INTGEMM8)
    if min(shape, default=1) < 1 or needed > len(block):
        raise ValueError(f"the array {shown(name)} is {list(shape)}, and has {len(block):,} bytes")
    values = torch.from_numpy(np.frombuffer(block, dtype, count).copy())
    if kind != _INTGEMM8:
        return values.reshape(shape), 1.0
    factor = np.frombuffer(block, _FACTOR, 1, count)[0]
    if not (np.isfinite(factor) and factor >= _LEAST_FACTOR):
        raise ValueError(f"the array {shown(name)} is divided by {factor:g}, which is no factor")
    unit = float(np.float32(1) / factor)
    numbers = values.float() * unit
    if _EMBEDDINGS in name or len(shape) != 2:
        return numbers.reshape(shape), unit
    return numbers.reshape(shape[::-1]).t(), unit


def fixed_units(
    stored: Container, names: Mapping[str, str | tuple[str, ...]], config: TransformerConfig
) -> Ranges | None:
    """Return the int8 of all products as the file has it; None where it has none of some.

    Args:
        stored: the file.
        names: our weights to theirs, see `translane_export.sources.placed_tensors`.
        config: of the model.

    Raises:
        ValueError: a number is none, or queries, keys and values of a layer are made of different units.
    """
    source, target = ((name,) if name in stored.units else ("Wemb",) for name in ("encoder_Wemb", "decoder_Wemb"))
    if not stored.units.keys() >= {*source, *target}:
        return None
    found = Ranges({"embedding.tokens.weight": FixedUnits(0.0, (stored.units[source[0]],))}, {}, {})
    own = tuple(name for name in names.get("output_projection.weight", ()) if name in stored.arrays)[:1] or target
    if own != target:
        found.decoder["embedding.tokens.weight"] = FixedUnits(0.0, (stored.units[target[0]],))
    named = (each for each in ("none", "Wemb", "decoder_Wemb", *own) if f"{each}_QuantMultA" in stored.arrays)
    products: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {"output_projection": (own, (next(named, "none"),))}
    for ours, theirs in names.items():
        module, _, kind = ours.rpartition(".")
        if kind != "weight" or not module.endswith("_proj") or module.endswith(_PACKED):
            continue
        layers = config.encoder_layers if module.startswith("encoder") else config.decoder_layers
        for layer in range(layers):
            weight = str(theirs).replace("**", str(layer + 1))
            is_packed = module.endswith("self_attention.q_proj")
            weights = tuple(weight[:-1] + part for part in "qkv") if is_packed else (weight,)
            products[module.replace("*", str(layer))] = weights, weights
    for module, (weights, inputs) in products.items():
        found_alphas = [stored.arrays.get(f"{each}_QuantMultA") for each in inputs]
        if not stored.units.keys() >= set(weights) or any(each is None for each in found_alphas):
            return None
        alphas = {float(each.flatten()[0]) for each in found_alphas if each is not None}
        alpha = alphas.pop()
        if alphas:
            raise ValueError(f"the inputs of {', '.join(weights)} have different units, which is not supported")
        if not _LEAST_FACTOR <= alpha < math.inf:
            raise ValueError(f"{inputs[0]}_QuantMultA is {alpha:g}, which is no number of units")
        side, name = place_in_graphs(module)
        of_graph = found.encoder if side == "encoder" else found.decoder
        unit = float(np.float32(1) / np.float32(alpha))
        of_graph[f"{name}.weight"] = FixedUnits(unit, tuple(stored.units[weight] for weight in weights))
    return found


def read_lexicon(path: Path, source_size: int, target_size: int, *, is_shared: bool) -> Shortlist:
    """Return the shortlist of a file. With a shared vocabulary, a translation may use the pieces of its source.

    Raises:
        ExportError: the file cannot be read, is damaged, or is of another model.
    """
    try:
        return _shortlist_of(read_regular(path), source_size, target_size, is_shared=is_shared)
    except OSError as error:
        raise ExportError(f"{path}: it cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ExportError(f"{path}: {error}") from None


def _shortlist_of(content: bytes, source_size: int, target_size: int, *, is_shared: bool) -> Shortlist:
    header = np.frombuffer(content[:_HEADER], "<u8").tolist() if len(content) >= _HEADER else [0]
    if header[0] != _SHORTLIST_MARK:
        raise ValueError("it is no binary shortlist of Marian's")
    _, checksum, first, _, offsets, count = header
    if len(content) != _HEADER + 8 * offsets + 4 * count:
        raise ValueError(f"it is cut off or damaged: it has {len(content):,} bytes, which are not as many as it says")
    if checksum != _checksum(content):
        raise ValueError("it is damaged: its checksum is another one")
    starts = np.frombuffer(content, "<u8", offsets, _HEADER)
    targets = np.frombuffer(content, "<u4", count, _HEADER + 8 * offsets).astype(np.int64)
    if offsets != source_size + 1:
        raise ValueError(f"it has lists of {offsets - 1:,} pieces, and the source's vocabulary has {source_size:,}")
    if starts[0] != 0 or starts[-1] != count or (starts[1:] < starts[:-1]).any():
        raise ValueError("it is damaged: its lists are not one after the other")
    if not 0 < first <= target_size or (count and int(targets.max()) >= target_size):
        raise ValueError(f"it has a piece that is none of the {target_size:,} of the target's vocabulary")
    places = starts.astype(np.int64).tolist()
    rules: dict[tuple[int, ...], list[int]] = {
        (piece,): [*targets[start:end].tolist(), *([piece] if is_shared else [])]
        for piece, (start, end) in enumerate(pairwise(places))
        if end > start or is_shared
    }
    made = Shortlist.of(rules, range(first), source_size)
    return Shortlist(source_size, made.always, made.keys, made.starts, made.targets, _MULTIPLE, target_size)


def _checksum(content: bytes) -> int:
    found = 0
    words = np.frombuffer(content, "<u8", (len(content) - _SUMMED_FROM) // 8, _SUMMED_FROM)
    for start in range(0, len(words), _WORDS_AT_ONCE):  # as Python's numbers they take five times the memory
        for value in words[start : start + _WORDS_AT_ONCE].tolist():
            found ^= (value + _SALT + (found << 6 & _WORD) + (found >> 2)) & _WORD
    return int(found)
