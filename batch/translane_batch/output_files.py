"""Outputs appear complete or not at all, and are of one run. Their folders hold files of other people, too."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO

from translane_batch.errors import ResumeError
from translane_batch.settings import OWN_FOLDER
from translane_batch.work_folder import WorkFolder, locked
from translane_server.core.files import in_place_of, written_whole

# The name is short, whatever name the output has, and nobody else's.
_NEW = ".translane-batch-{}.new"

_OWNER = "owner"  # the file that names the state of the run whose outputs these are


@contextmanager
def held_output(output: Path, work: WorkFolder) -> Iterator[None]:
    """Keep other runs from writing into the output folder, which is made if there is none.

    Args:
        output: the folder.
        work: the folder of the run's state, which is held already.

    Raises:
        ResumeError: another run works in the output folder, or the folder holds something else under that name.
    """
    own = output / OWN_FOLDER
    own.mkdir(parents=True, exist_ok=True)
    if own.samefile(work.path):
        yield
        return
    with locked(own):
        yield


def take_output(output: Path, work: WorkFolder) -> None:
    """Note that the outputs are those of a run that begins."""
    with written_whole(output / OWN_FOLDER / _OWNER) as file:
        file.write(_name_of(work))


def check_output(output: Path, work: WorkFolder) -> None:
    """Make sure that no run with another state has begun to write the same outputs since.

    Raises:
        ResumeError: one has.
    """
    with suppress(FileNotFoundError):
        owner = (output / OWN_FOLDER / _OWNER).read_bytes()
        if owner != _name_of(work):
            raise ResumeError(
                f"{output}: another run has begun since to write there; its state is {os.fsdecode(owner)}"
            )


def _name_of(work: WorkFolder) -> bytes:
    return os.fsencode(work.path.resolve())


@contextmanager
def written_output(path: Path) -> Iterator[BinaryIO]:
    """Yield a new file, which takes the place of `path` once it is written and on the disk.

    If what runs within fails, nothing is left of the new file. A program that is killed leaves it; see
    `remove_unfinished_outputs`.

    Raises:
        OSError: the file cannot be written; `filename` names it.
    """
    new = path.with_name(_NEW.format(token_hex(8)))
    with in_place_of(path, new), new.open("xb", buffering=1 << 16) as file:
        yield file


def remove_unfinished_outputs(folder: Path) -> None:
    """Remove the new files that killed runs have left in `folder`. No other run may write there meanwhile."""
    for path in folder.glob(_NEW.format("?" * 16)):
        path.unlink(missing_ok=True)
