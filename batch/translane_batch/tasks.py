"""What the sources of a corpus are divided into: buckets by a hash of the source, and tasks of some sources each."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

MOST_BUCKETS = 512
"""Each bucket is an open file while sources are read and while outputs are written."""

BUCKET_BYTES = 16 << 20
"""Bytes of sources that a bucket should have at most: the different ones are in memory together."""

TASK_BYTES = 1 << 20
"""Bytes of a task's sources at most, unless one source alone has more. Long texts make tasks of few sources."""


@dataclass(frozen=True, slots=True)
class Key:
    """Where a source belongs.

    Attributes:
        bucket: number of its bucket. Equal sources have the same one.
        check: eight hexadecimal digits, which tell whether a line of a file belongs to the source.
    """

    bucket: int
    check: bytes


@dataclass(frozen=True, slots=True)
class Task:
    """Some of the different sources of a bucket: what is translated, and written, at a time."""

    bucket: int
    part: int
    sources: int

    @property
    def name(self) -> str:
        """The name of the task's files."""
        return f"{self.bucket:04}-{self.part:06}"


def key_of(line: bytes, buckets: int) -> Key:
    """Return the key of a source, where there are so many buckets. `line` is the source as `answers.line_of` has it."""
    digest = hashlib.blake2b(line, digest_size=12).digest()
    return Key(int.from_bytes(digest[:8], "big") % buckets, digest[8:].hex().encode())


def buckets_for(size: int) -> int:
    """Return the number of buckets for `size` bytes of sources."""
    return max(1, min(MOST_BUCKETS, -(-size // BUCKET_BYTES)))
