"""The private door to the gRPC server, for calls of the same process: a unix socket that only this user reaches."""

from __future__ import annotations

import secrets
import tempfile
from pathlib import Path

from translane_server.core.errors import StartupError

# Where a folder is made: the system's place for such folders, or shared memory, which read-only containers have.
_PLACES = (None, "/dev/shm")  # noqa: S108  mkdtemp makes a folder that only this user enters


class PrivateSocket:
    """A place for a unix socket, in a folder of its own.

    Attributes:
        address: gRPC's name of the socket.
        secret: what a call at the socket shows to be forwarded by this process.

    Raises:
        StartupError: no folder can be made.
    """

    def __init__(self) -> None:
        self._folder = _made()
        self.address = f"unix:{self._folder.name}/grpc"
        self.secret = secrets.token_hex(16)

    def close(self) -> None:
        """Remove the folder."""
        self._folder.cleanup()


def _made() -> tempfile.TemporaryDirectory[str]:
    for place in _PLACES:
        try:
            folder = tempfile.TemporaryDirectory(prefix="translane-", dir=place, ignore_cleanup_errors=True)
        except OSError:
            continue
        Path(folder.name).chmod(0o700)
        return folder
    raise StartupError("forwarded calls need a folder for a socket, and neither TMPDIR, /tmp nor /dev/shm takes one")
