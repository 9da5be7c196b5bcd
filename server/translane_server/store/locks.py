"""Locks of the model cache. They are those of the kernel (flock), so a process that is killed holds nothing."""

from __future__ import annotations

import fcntl
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from translane_server.bundle import MANIFEST
from translane_server.store.problems import StoppedError

_TICK = 0.05  # from one look at the lock to the next [seconds]

_log = logging.getLogger(__name__)


class Hold:
    """A bundle that stays in the cache until `release`, or until the process ends.

    Attributes:
        folder: the bundle.
    """

    def __init__(self, folder: Path, descriptor: int) -> None:
        self.folder = folder
        self._descriptor = descriptor

    @classmethod
    def of(cls, folder: Path) -> Hold | None:
        """Keep a bundle from being removed, and count it as used now; None if it is not there."""
        try:
            descriptor = os.open(folder / MANIFEST, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        hold = cls(folder, descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            if not os.path.samestat(os.fstat(descriptor), (folder / MANIFEST).stat()):
                raise FileNotFoundError  # it was removed, and downloaded again
            with suppress(OSError):  # a folder that others have filled, and that is only read
                os.utime(descriptor)
        except FileNotFoundError:
            hold.release()
            return None
        except BaseException:
            hold.release()
            raise
        return hold

    def release(self) -> None:
        """Hold the bundle no longer."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self.release()


def try_lock(descriptor: int) -> bool:
    """Lock a file for this process alone, until the descriptor is closed; return whether nobody else holds it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def locked(folder: Path, stop: threading.Event) -> Iterator[None]:
    """Wait until no other process changes the model cache `folder`, and keep others from changing it.

    Raises:
        StoppedError: `stop` was set meanwhile.
    """
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        waits = False
        while not try_lock(descriptor):
            if not waits:
                _log.info("model cache %s: another process downloads a bundle; waiting", folder)
            waits = True
            if stop.wait(_TICK):
                raise StoppedError
        yield
    finally:
        os.close(descriptor)
