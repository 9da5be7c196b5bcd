"""An output folder that appears complete or not at all."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from translane_export.errors import ExportError


def check_replaceable(folder: Path, *, force: bool, markers: Sequence[str]) -> None:
    """Refuse an output that is in the way.

    Args:
        folder: where the output is to appear.
        force: whether an earlier output may be replaced; nothing else ever is.
        markers: files one of which tells that a folder is an earlier output.

    Raises:
        ExportError: there is something already, or the folder cannot be made.
    """
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise ExportError(f"output {folder}: it is not a folder")
    if not folder.exists() or not any(folder.iterdir()):
        return
    if not any((folder / marker).is_file() for marker in markers):
        raise ExportError(f"output {folder}: it holds other files than a model bundle, which are left alone")
    if not force:
        raise ExportError(f"output {folder}: there is a model bundle already; --force replaces it")


@contextlib.contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """Give a temporary folder beside `folder` that takes its place at the end; after an error nothing is left.

    Raises:
        ExportError: the folders cannot be written.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as error:
        raise ExportError(f"output {folder}: it cannot be written: {error.strerror}") from None
    try:
        yield staging
        staging.chmod(0o755)  # mkdtemp's is for its owner alone
        _swap(staging, folder)
    except OSError as error:
        raise ExportError(f"output {folder}: it cannot be written: {error.strerror or error}") from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _swap(staging: Path, folder: Path) -> None:
    if not folder.exists():
        staging.rename(folder)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        folder.rename(old / "old")
        try:
            staging.rename(folder)
        except OSError:
            (old / "old").rename(folder)
            raise
    finally:
        shutil.rmtree(old, ignore_errors=True)
