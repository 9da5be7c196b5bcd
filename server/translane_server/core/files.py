"""Reads files that anybody may have written: only regular files, of bounded size, and JSON of bounded depth.

Whoever opens a named pipe waits for a writer, and a device such as /dev/zero never ends.
"""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path
from typing import Any

from pydantic_core import from_json

MOST_BYTES = 1 << 30
"""Most bytes that are read into memory of one file: tokenizers and vocabularies have some megabytes."""

MOST_DESCRIPTION_BYTES = 1 << 26
"""Most bytes of a manifest, or of the settings of a checkpoint: they have some kilobytes."""

_CHUNK = 1 << 20  # bytes

_KINDS = (
    (stat.S_ISDIR, "it is a folder, not a file"),
    (stat.S_ISFIFO, "it is a named pipe, not a file"),
    (stat.S_ISSOCK, "it is a socket, not a file"),
    (stat.S_ISCHR, "it is a device, not a file"),
    (stat.S_ISBLK, "it is a device, not a file"),
)


def check_regular(path: Path) -> os.stat_result:
    """Return the status of the regular file at `path`, or of the one that a link there leads to.

    Raises:
        OSError: there is no such file, or it is a folder, pipe, socket or device; `strerror` says which.
    """
    status = _stat(path)
    _check_kind(status, path)
    return status


def open_regular(path: Path) -> BufferedReader:
    """Open the regular file at `path`; never wait for the other end of a pipe. Raises OSError as `check_regular`."""
    check_regular(path)
    # Between the check and this call, somebody may have put a pipe there.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        _check_kind(os.fstat(descriptor), path)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: Path, most: int = MOST_BYTES) -> bytes:
    """Return the content of the regular file at `path`, of at most `most` bytes.

    Raises:
        OSError: as `check_regular`, or the file is larger.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise _too_large(path, size, most)
        content = file.read(size)
        while more := file.read(_CHUNK):  # the file grows, or its system gives no sizes
            content += more
            if len(content) > most:
                raise _too_large(path, len(content), most)
    return content


def parse_json(content: bytes) -> Any:
    """Return the value of a JSON text in UTF-8.

    Raises:
        ValueError: the text is not JSON, or has more than some 200 levels; the message is short and quotes nothing.
    """
    return from_json(content)


def _stat(path: Path) -> os.stat_result:
    try:
        return path.stat()
    except ValueError:  # a name with a zero byte
        raise OSError(errno.EINVAL, "no file has such a name", str(path)) from None


def _check_kind(status: os.stat_result, path: Path) -> None:
    for is_kind, problem in _KINDS:
        if is_kind(status.st_mode):
            raise OSError(errno.EISDIR if is_kind is stat.S_ISDIR else errno.EINVAL, problem, str(path))


def _too_large(path: Path, size: int, most: int) -> OSError:
    return OSError(errno.EFBIG, f"it has {size:,} bytes, and at most {most:,} are read", str(path))
