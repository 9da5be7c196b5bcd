"""Reads the binary shortlists of Marian's (lex.50.50.deen.s2t.bin), as Firefox ships them beside its students.

The file has six numbers of 8 bytes, little-endian: a mark, a checksum, how many of the first target pieces every
translation may use, the most targets of a source piece, and two counts. Then come the offsets of each source piece's
targets, of 8 bytes, and the targets, of 4 bytes.

https://github.com/mozilla/translations (inference/marian-fork/src/data/shortlist.cpp)
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np

from translane_export.errors import ExportError
from translane_server.bundle.shortlist import Shortlist
from translane_server.core.files import read_regular

_MARK = 0xF11A48D5013417F5
_HEADER = 48  # bytes
_SUMMED_FROM = 16  # bytes: the checksum is of all that follows, in whole words of 8 bytes
_MULTIPLE = 8  # of the tokens of a list
_WORD, _SALT = (1 << 64) - 1, 0x9E3779B9


def read_lexicon(path: Path, source_size: int, target_size: int, *, is_shared: bool) -> Shortlist:
    """Return the shortlist of a file. With a shared vocabulary, a translation may use the pieces of its source.

    Raises:
        ExportError: the file cannot be read, is damaged, or is of another model.
    """
    try:
        return _read(read_regular(path), source_size, target_size, is_shared=is_shared)
    except OSError as error:
        raise ExportError(f"{path}: it cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ExportError(f"{path}: {error}") from None


def _read(content: bytes, source_size: int, target_size: int, *, is_shared: bool) -> Shortlist:
    header = np.frombuffer(content[:_HEADER], "<u8").tolist() if len(content) >= _HEADER else [0]
    if header[0] != _MARK:
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
    end = len(content) - (len(content) - _SUMMED_FROM) % 8
    for value in np.frombuffer(content[_SUMMED_FROM:end], "<u8").tolist():
        found ^= (value + _SALT + (found << 6 & _WORD) + (found >> 2)) & _WORD
    return int(found)
