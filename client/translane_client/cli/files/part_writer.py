"""Writes the parts of a file, so that an interrupted command can go on."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from translane_client.cli.files.journal import Checkpoint, Journal
from translane_client.cli.text_files import FileError

_SYNC_EVERY = 1.0
"""Seconds between two times that output and journal are made to outlast a loss of power."""
_CHUNK = 1 << 20


class PartWriter:
    """Writes parts one after the other. The first part opens the file.

    Args:
        path: The file to write. None: `stdout`.
        stdout: Standard output.
        is_document: Whether the file appears at `path` only when it is whole; until then it is beside it, as FILE.part.
        journal: Keeps how far the output came; None for an output that cannot be resumed.
    """

    def __init__(
        self, path: Path | None, stdout: BinaryIO | None, *, is_document: bool, journal: Journal | None
    ) -> None:
        self.name = "standard output" if path is None else str(path)
        self.count = 0
        """Lines that were written; of a document, texts."""
        self.can_be_resumed = journal is not None
        self.is_document = is_document
        self._path = _resolved(path) if path else None
        self._working = self._path
        if self._path and journal and is_document:
            self._working = self._path.with_name(f"{self._path.name}.part")
        self._journal = journal
        self._file = stdout if path is None else None
        self._done = Checkpoint()
        self._written = hashlib.blake2b(digest_size=8)
        self._synced = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._path is None:
            return
        try:
            if kind is None:
                self._finish()
            else:
                self.close()
        except OSError as problem:
            if kind is not None:  # the error under way is this same failure, or a more important one
                return
            raise FileError(f"{self.name}: {problem.strerror or problem}") from problem

    def close(self) -> None:
        """Closes the files. May be called again."""
        if self._path and self._file is not None:
            self._file.close()
        if self._journal:
            self._journal.close()

    def is_left_over(self) -> bool:
        """Whether the output is whole, and only its journal is left over; the journal is removed then."""
        if not self._journal or not self._path or self._working == self._path or not self._is_whole(self._path):
            return False
        self._journal.remove()
        return True

    def resume(self) -> Checkpoint:
        """Goes back to the last checkpoint that the output holds, and goes on from there; returns the checkpoint.

        Raises:
            FileError: the output cannot be read or written.
        """
        assert self._journal
        assert self._working
        try:
            self._done, self._written = _kept(self._working, self._journal.checkpoints())
            if self._done.parts:
                self._file = self._working.open("r+b")
                self._file.truncate(self._done.size)
                self._file.seek(self._done.size)
                self._journal.begin(self._done)
        except OSError as error:
            raise FileError(f"{self._working}: {error.strerror or error}") from error
        return self._done

    def write(self, data: bytes, texts: int, read: str) -> None:
        """Writes a part.

        Args:
            data: The part's bytes.
            texts: How many texts the part has.
            read: Digest of the input up to the part's end.

        Raises:
            FileError: the file cannot be opened or written.
            BrokenPipeError: nobody reads the output any more.
        """
        file = self._open()
        try:
            file.write(data)
            file.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise FileError(f"{self.name}: {error.strerror or error}") from error
        self.count += texts if self.is_document else data.count(b"\n")
        if self._journal:
            self._written.update(data)
            size = self._done.size + len(data)
            self._done = Checkpoint(self._done.parts + 1, size, read, self._written.hexdigest())
            self._journal.add(self._done)
            self._sync(file)

    def _sync(self, file: BinaryIO) -> None:
        assert self._journal
        now = time.monotonic()
        if now - self._synced < _SYNC_EVERY:
            return
        self._synced = now
        os.fsync(file.fileno())
        self._journal.sync()
        if self._journal.is_large:
            self._journal.begin(self._done)

    def _finish(self) -> None:
        file = self._open()  # an output without parts is a file nevertheless
        if self._journal:
            os.fsync(file.fileno())
        file.close()
        if self._working and self._path and self._working != self._path:
            if self._path.exists():
                shutil.copymode(self._path, self._working)
            self._working.replace(self._path)
        if self._journal:
            self._journal.remove()

    def _is_whole(self, path: Path) -> bool:
        """Whether the file at `path` is what the last checkpoint says; the unfinished output has its name no more."""
        assert self._journal
        assert self._working
        last = next(iter(deque(self._journal.checkpoints(), maxlen=1)), Checkpoint())
        if self._working.exists() or not last.parts or not path.exists():
            return False
        return _kept(path, [last])[0] == last and path.stat().st_size == last.size

    def _open(self) -> BinaryIO:
        if self._file is None:
            if self._working is None:
                raise FileError(f"{self.name} is closed")
            if self._journal:
                if self._journal.is_new and self._working != self._path and self._working.exists():
                    self._journal.remove()
                    raise FileError(f"{self._working}: it is in the way, and no command has left it")
                self._journal.begin(Checkpoint())  # before the output is emptied
            try:
                self._file = self._working.open("wb")
            except OSError as error:
                if self._journal:
                    self._journal.remove()
                raise FileError(f"{self.name}: {error.strerror or error}") from error
        return self._file


def _resolved(path: Path) -> Path:
    """The file that a link leads to."""
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        raise FileError(f"{path}: its links lead nowhere") from None


def _kept(path: Path, checkpoints: Iterable[Checkpoint]) -> tuple[Checkpoint, hashlib.blake2b]:
    """The last of the checkpoints that the file at `path` holds, and the digest of the file up to there."""
    kept, digest = Checkpoint(), hashlib.blake2b(digest_size=8)
    if not path.exists():
        return kept, digest
    with path.open("rb") as file:
        seen = digest.copy()
        for checkpoint in checkpoints:
            left = checkpoint.size - file.tell()
            while left > 0 and (data := file.read(min(left, _CHUNK))):
                seen.update(data)
                left -= len(data)
            if left or seen.hexdigest() != checkpoint.written:
                break
            kept, digest = checkpoint, seen.copy()
    return kept, digest
