"""Changes the file of keys: whole, or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from translane_server.access.keys import Holders, load_keys, write_keys
from translane_server.core.errors import KeysError

# Only its owner reads a new file. A file that exists keeps its mode.
_MODE = 0o600


def change_keys(path: Path, change: Callable[[Holders], Holders]) -> None:
    """Replace the file of keys by one with other holders. Whoever reads it meanwhile reads the file before.

    Changes of the same file wait for each other.

    Args:
        path: the file; it is made if there is none.
        change: returns the new holders. Nothing is written if it raises.

    Raises:
        KeysError: the file cannot be read or written.
    """
    path = Path(os.path.realpath(path))  # a link stays one
    try:
        with _locked(path.parent):
            before = load_keys(path) if path.exists() else {}
            _replace(path, write_keys(change(before)))
    except OSError as error:
        raise KeysError(f"keys file {path}: it cannot be written: {error.strerror}") from None


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _replace(path: Path, content: str) -> None:
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)  # of a command that was killed
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, _MODE)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(content)
            file.flush()
            if path.exists():
                status = path.stat()
                with contextlib.suppress(PermissionError):
                    os.fchown(file.fileno(), status.st_uid, status.st_gid)
                os.fchmod(file.fileno(), stat.S_IMODE(status.st_mode))
            os.fsync(file.fileno())
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
