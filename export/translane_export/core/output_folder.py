"""An output folder that appears complete or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from translane_export.core.errors import ExportError
from translane_server.core.files import MOST_DESCRIPTION_BYTES, parse_json, read_regular


def check_replaceable(
    folder: Path, *, force: bool, markers: Sequence[str], parts: Sequence[str] = (), what: str = "a model bundle"
) -> None:
    """Refuse an output that is in the way, or that cannot be written.

    With ``force``, an earlier output may be replaced, and nothing else. One of the manifests ``markers`` lists its
    files; or it is made of the folders ``parts``, each with such a manifest.
    """
    try:
        _check_parent(folder)
        _check_entries(folder, force=force, markers=markers, parts=parts, what=what)
    except OSError as error:
        raise ExportError(f"output {folder}: it cannot be written: {error.strerror}") from None


def _check_parent(folder: Path) -> None:
    parent = next((path for path in folder.absolute().parents if path.exists()), folder)
    if not parent.is_dir():
        raise ExportError(f"output {folder}: {parent} is not a folder")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise ExportError(f"output {folder}: the folder {parent} cannot be written to")
    is_current = folder.resolve() == Path.cwd()
    if is_current or folder.is_mount():
        what = "the current folder" if is_current else "a mount point"
        raise ExportError(f"output {folder}: it is {what}, which is never replaced; name a folder inside it")


def _check_entries(folder: Path, *, force: bool, markers: Sequence[str], parts: Sequence[str], what: str) -> None:
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise ExportError(f"output {folder}: it is not a folder")
    if not folder.exists() or not any(folder.iterdir()):
        return
    listed = _listed_in(folder, markers)
    if not listed:
        held = [folder / part for part in parts if not (folder / part).is_symlink()]
        listed = {f"{part.name}/{file}" for part in held for file in _listed_in(part, markers)}
    if not listed:
        raise ExportError(f"output {folder}: it holds other files than {what}, which are left alone")
    if others := _other_entries(folder, listed):
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        raise ExportError(f"output {folder}: it holds other files: {others[0]}{more}; they are left alone")
    if not force:
        raise ExportError(f"output {folder}: there is {what} already; --force replaces it")


def _listed_in(folder: Path, markers: Sequence[str]) -> set[str]:
    """Return the names of the files of the bundle in `folder`; none where there is no bundle."""
    return next((files for marker in markers if (files := _listed_files(folder / marker)) is not None), set())


def _listed_files(manifest: Path) -> set[str] | None:
    """Return the names of a bundle's files, its manifest among them; None where `manifest` is not a bundle's."""
    try:
        content = parse_json(read_regular(manifest, MOST_DESCRIPTION_BYTES))
    except (OSError, ValueError):
        return None
    if not isinstance(content, dict) or "schema_version" not in content or not isinstance(content.get("files"), dict):
        return None
    return {*content["files"], manifest.name}


def _other_entries(folder: Path, listed: set[str]) -> list[str]:
    known = {Path(name) for name in listed}
    known |= {parent for path in known for parent in path.parents}
    return sorted(str(name) for path in folder.rglob("*") if (name := path.relative_to(folder)) not in known)


@contextlib.contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """Give a temporary folder beside `folder` that takes its place at the end; after an error nothing is left.

    Raises:
        ExportError: the folders cannot be written.
    """
    made = [path for path in folder.absolute().parents if not path.exists()]
    try:
        yield from _staged(folder)
    finally:
        for path in made:  # the innermost first; those that hold something stay
            with contextlib.suppress(OSError):
                path.rmdir()


def _staged(folder: Path) -> Iterator[Path]:
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
        _replace(folder, staging, old / "old")
    finally:
        shutil.rmtree(old, ignore_errors=True)


def _replace(folder: Path, new: Path, old: Path) -> None:
    """Move `folder` to `old` and `new` to where it was; whatever comes between, even Ctrl-C, `folder` is back."""
    try:
        folder.rename(old)
        new.rename(folder)
    except BaseException:
        if old.exists() and not folder.exists():
            old.rename(folder)
        raise
