"""Outputs appear complete or not at all. Their folders hold files of other people, too."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO

from translane_server.whole_files import flush, flush_folder

# The name is short, whatever name the output has, and nobody else's.
_NEW = ".translane-batch-{}.new"


@contextmanager
def written_output(path: Path) -> Iterator[BinaryIO]:
    """Yield a new file, which takes the place of `path` once it is written and on the disk.

    If what runs within fails, nothing is left of the new file. A program that is killed leaves it; see
    `remove_unfinished_outputs`.

    Raises:
        OSError: the file cannot be written; `filename` names it.
    """
    new = path.with_name(_NEW.format(token_hex(8)))
    try:
        with new.open("xb", buffering=1 << 16) as file:
            yield file
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


def remove_unfinished_outputs(folder: Path) -> None:
    """Remove the new files that killed runs have left in `folder`. No other run may write there meanwhile."""
    for path in folder.glob(_NEW.format("?" * 16)):
        path.unlink(missing_ok=True)
