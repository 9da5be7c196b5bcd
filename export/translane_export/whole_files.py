"""Files that appear complete or not at all, however the program ends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Yield the path of a new file, which takes the place of `path` once it is written.

    The new file is on the disk before it takes the place, so a crash of the machine leaves the old file or the new one.
    If what runs within fails, nothing is left of the new file.

    Raises:
        OSError: the file cannot be written.
    """
    new = path.with_name(f".{path.name}.new")
    try:
        yield new
        flush(new)
        new.replace(path)
    except BaseException:
        with suppress(OSError):
            new.unlink()
        raise


def flush(path: Path) -> None:
    """Wait until a file is on the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
