"""The journal of an output: how far the output came, for a command that goes on after an interruption.

The journal lies beside the output, and is there as long as the output is not whole. Its first line says what was asked
for. Each line after it is a checkpoint: the output is right up to there. A checkpoint holds digests of what was read
and of what was written, so that a changed input is noticed, and so is an output whose end was lost with the power.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from translane_client.cli.text_files import FileError

_LARGEST = 1 << 20
"""Bytes of a journal that is written anew with its last checkpoint alone."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A state of the output."""

    parts: int = 0
    """Parts of the input that are written."""
    size: int = 0
    """Bytes of the output."""
    read: str = ""
    """Digest of these parts of the input."""
    written: str = ""
    """Digest of these bytes of the output."""


class Journal:
    """The journal of one output. It belongs to one command at a time.

    Args:
        path: The journal's own path.
        request: What is asked for: flag → value. It is written as JSON.

    Every method raises FileError where the journal cannot be read or written, or another command has it.
    """

    def __init__(self, path: Path, request: Mapping[str, Any]) -> None:
        self.path = path
        self._request = json.dumps(request, ensure_ascii=False, sort_keys=True)
        self._file: BinaryIO | None = None

    @property
    def exists(self) -> bool:
        """Whether a command was interrupted, or is at work."""
        return self.path.exists()

    @property
    def is_large(self) -> bool:
        """Whether `begin` should make it small again."""
        return self._opened().tell() > _LARGEST

    def changed_flag(self) -> str | None:
        """The first flag whose value differs from the interrupted command's; None where there is none."""
        file = self._opened()
        file.seek(0)
        line = file.readline()
        if not line.endswith(b"\n"):
            return None  # the command was interrupted before it had written anything
        try:
            before, now = json.loads(line), json.loads(self._request)
            return next((flag for flag in sorted({*before, *now}) if before.get(flag) != now.get(flag)), None)
        except (ValueError, TypeError, AttributeError) as error:
            raise FileError(f"{self.path}: not a journal of translane; --resume needs one") from error

    @property
    def is_new(self) -> bool:
        """Whether nothing is written in the journal yet.

        Raises:
            FileError: the file is no journal. It is not to be overwritten.
        """
        file = self._opened()
        file.seek(0)
        line = file.readline()
        if line and not line.startswith(b"{"):
            raise FileError(f"{self.path}: not a journal of translane; it is in the way")
        return not line

    def checkpoints(self) -> Iterator[Checkpoint]:
        """The checkpoints, in order, up to a line that is broken."""
        file = self._opened()
        file.seek(0)
        for index, line in enumerate(file):
            if not line.endswith(b"\n"):
                return
            try:
                values = json.loads(line) if index else []
                if index and [type(value) for value in values] != [int, int, str, str]:
                    return
                checkpoint = Checkpoint(*values) if index else None
            except (ValueError, TypeError):
                return
            if checkpoint:
                yield checkpoint

    def begin(self, checkpoint: Checkpoint) -> None:
        """Makes the journal hold this checkpoint alone. Whoever interrupts this finds the one or the other journal."""
        before = self._opened()
        fresh = self.path.with_name(f"{self.path.name}.new")
        self._file = _locked(fresh)
        self._file.truncate(0)
        self._write(self._request)
        if checkpoint.parts:
            self.add(checkpoint)
        self.sync()
        fresh.replace(self.path)
        before.close()

    def add(self, checkpoint: Checkpoint) -> None:
        """Adds a checkpoint, once the output is there. A process that is killed afterwards does not lose it."""
        self._write(json.dumps(astuple(checkpoint)))

    def sync(self) -> None:
        """Makes the journal outlast a loss of power."""
        os.fsync(self._opened().fileno())

    def remove(self) -> None:
        """Removes the journal: the output is whole, or nothing of it is written."""
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Lets another command have the journal. May be called again."""
        if self._file is not None:
            self._file.close()

    def _opened(self) -> BinaryIO:
        if self._file is None:
            self._file = _locked(self.path)
        return self._file

    def _write(self, line: str) -> None:
        file = self._opened()
        try:
            file.write(line.encode() + b"\n")
            file.flush()
        except OSError as error:
            raise FileError(f"{self.path}: {error.strerror or error}") from error


def _locked(path: Path) -> BinaryIO:
    try:
        file = path.open("a+b")
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        taken = isinstance(error, BlockingIOError)
        problem = "another command writes this output" if taken else error.strerror or error
        raise FileError(f"{path}: {problem}") from error
    return file
