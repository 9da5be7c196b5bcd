"""Files that appear complete or not at all, however the program or the machine ends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO

_NEW = ".new"


@contextmanager
def written_whole(path: Path) -> Iterator[BinaryIO]:
    """Yield a new file, which takes the place of `path` once it is written and on the disk.

    Each new file has a name of its own, so two machines may write the same file at the same time. If what runs within
    fails, nothing is left of the new file. A program that is killed leaves it; see `remove_unfinished`.

    Raises:
        OSError: the file cannot be written; `filename` names it.
    """
    new = path.with_name(f".{path.name}.{token_hex(4)}{_NEW}")
    with in_place_of(path, new), new.open("xb", buffering=1 << 16) as file:
        yield file


@contextmanager
def replaced_whole(path: Path) -> Iterator[Path]:
    """Yield the path of a new file, which takes the place of `path` once it is written and on the disk.

    This is for libraries that write to a path, and for one writer at a time: the next one writes over the new file that
    a killed program has left. If what runs within fails, nothing is left of the new file.

    Raises:
        OSError: the file cannot be written.
    """
    new = path.with_name(f".{path.name}{_NEW}")
    with in_place_of(path, new):
        yield new


def remove_unfinished(folder: Path) -> None:
    """Remove the new files that killed programs have left in `folder`. Nobody may write there meanwhile."""
    for path in folder.glob(f".*{_NEW}"):
        path.unlink(missing_ok=True)


def flush(path: Path) -> None:
    """Wait until a file is on the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def flush_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk, as far as its file system can tell."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):  # some shared file systems cannot
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def in_place_of(path: Path, new: Path) -> Iterator[None]:
    """Let what is written to `new` take the place of `path`, or remove `new`.

    Raises:
        OSError: a file cannot be written; `filename` names it.
    """
    try:
        yield
        flush(new)
        new.replace(path)
        flush_folder(path.parent)
    except BaseException as error:
        with suppress(OSError):
            new.unlink()
        # A full disk is found by a write, and such an error names no file.
        if isinstance(error, OSError) and error.filename is None and error.errno is not None:
            raise OSError(error.errno, os.strerror(error.errno), str(path)) from error
        raise
