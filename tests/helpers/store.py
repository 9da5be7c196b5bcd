"""Things that take seconds to make, made once for a test session, whichever of its processes needs them first."""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path


def stored(key: object, make: Callable[[Path], object]) -> Path:
    """Return the folder of `key`, whose `repr` tells it from others; not to be written to.

    Where it is not there yet, `make` makes it at the path it is given. Who else asks for it waits.
    """
    folder = _store() / hashlib.sha256(repr(key).encode()).hexdigest()[:16]
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            unfinished = folder.with_suffix(".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            make(unfinished)
            unfinished.rename(folder)
    return folder


@cache
def _store() -> Path:
    """The session's folder, or one of this process where there is no session."""
    if "TESTS_STORE" in os.environ:
        return Path(os.environ["TESTS_STORE"])
    folder = Path(tempfile.mkdtemp(prefix="translane-store-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
