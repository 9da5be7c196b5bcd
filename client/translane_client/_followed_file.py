"""A file whose content others replace while a client uses it, as those do who rotate keys and certificates."""

from __future__ import annotations

import os
import stat
from pathlib import Path

_MOST_BYTES = 1 << 20


class FollowedFile:
    """A small file, and the content that was last taken from it.

    Args:
        path: The file.
        setting: The name of the setting that names the file, for messages.

    Raises:
        ValueError: the file cannot be read; the message begins with the setting.
    """

    def __init__(self, path: str | os.PathLike[str], setting: str) -> None:
        self.path = Path(path)
        self._setting = setting
        self.content, self._stamp = self._read()

    def has_changed(self) -> bool:
        """Whether the file is another one than its content was taken from; a file that is away has not changed."""
        try:
            return _stamp_of(self.path.stat()) != self._stamp
        except OSError:
            return False

    def refresh(self) -> None:
        """Takes the content anew. ValueError: the file cannot be read."""
        self.content, self._stamp = self._read()

    def _read(self) -> tuple[bytes, tuple[int, ...]]:
        try:
            status = self.path.stat()
            if not stat.S_ISREG(status.st_mode):  # reading a pipe could take forever
                raise ValueError(f"{self._setting}: {self.path} is not a file")
            with self.path.open("rb") as file:
                status = os.fstat(file.fileno())
                content = file.read(_MOST_BYTES + 1)
        except OSError as error:
            raise ValueError(f"{self._setting}: {self.path} cannot be read: {error.strerror or error}") from None
        if len(content) > _MOST_BYTES:
            raise ValueError(f"{self._setting}: {self.path} is longer than {_MOST_BYTES} bytes")
        return content, _stamp_of(status)


def _stamp_of(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
