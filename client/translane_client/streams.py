"""The standard streams of a command."""

from __future__ import annotations

from dataclasses import dataclass
from typing import BinaryIO, TextIO


@dataclass(frozen=True, slots=True)
class Streams:
    """Where a command reads and writes: bytes for texts, which are UTF-8 whatever the locale, and text for people."""

    stdin: BinaryIO
    stdout: BinaryIO
    stderr: TextIO
