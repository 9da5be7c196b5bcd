"""Reads files within bounds, and writes files whole.

Whoever opens a named pipe waits for a writer, and a device such as /dev/zero never ends.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from secrets import token_hex
from typing import Any, BinaryIO, NamedTuple

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
    try:
        status = path.stat()
    except ValueError:  # a name with a zero byte
        raise OSError(errno.EINVAL, "no file has such a name", str(path)) from None
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
    from pydantic_core import from_json  # late: replicas parse nothing

    return from_json(content)


def _check_kind(status: os.stat_result, path: Path) -> None:
    for is_kind, problem in _KINDS:
        if is_kind(status.st_mode):
            raise OSError(errno.EISDIR if is_kind is stat.S_ISDIR else errno.EINVAL, problem, str(path))


def _too_large(path: Path, size: int, most: int) -> OSError:
    return OSError(errno.EFBIG, f"it has {size:,} bytes, and at most {most:,} are read", str(path))


_NEW = ".new"


@contextmanager
def written_whole(path: Path) -> Iterator[BinaryIO]:
    """Yield a new file, which takes the place of `path` once it is written and on the disk.

    Each new file has a name of its own, so two machines may write the same file at the same time. If what runs within
    fails, nothing is left of the new file. A program that is killed leaves it; see `remove_unfinished`.

    Raises:
        OSError: the file cannot be written; `filename` names it.
    """
    new = path.with_name(f".{path.name}.{token_hex(4)}{_NEW}")
    with in_place_of(path, new), new.open("xb", buffering=1 << 16) as file:
        yield file


@contextmanager
def replaced_whole(path: Path) -> Iterator[Path]:
    """Yield the path of a new file, which takes the place of `path` once it is written and on the disk.

    This is for libraries that write to a path, and for one writer at a time: the next one writes over the new file that
    a killed program has left. If what runs within fails, nothing is left of the new file.

    Raises:
        OSError: the file cannot be written.
    """
    new = path.with_name(f".{path.name}{_NEW}")
    with in_place_of(path, new):
        yield new


def remove_unfinished(folder: Path) -> None:
    """Remove the new files that killed programs have left in `folder`. Nobody may write there meanwhile."""
    for path in folder.glob(f".*{_NEW}"):
        path.unlink(missing_ok=True)


def flush(path: Path) -> None:
    """Wait until a file is on the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def flush_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk, as far as its file system can tell."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):  # some shared file systems cannot
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def in_place_of(path: Path, new: Path) -> Iterator[None]:
    """Let what is written to `new` take the place of `path`, or remove `new`.

    Raises:
        OSError: a file cannot be written; `filename` names it.
    """
    try:
        yield
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


class Stamp(NamedTuple):
    """Changes when a file changes, or when a link leads to another file."""

    device: int
    inode: int
    size: int
    modified: int  # nanoseconds
    changed: int  # nanoseconds

    @classmethod
    def of(cls, status: os.stat_result) -> Stamp:
        """Return the stamp of a file with this status."""
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def stamp_of(path: Path) -> Stamp | None:
    """Return the stamp of the file at `path`; None if there is none, or no file has such a name."""
    try:
        return Stamp.of(path.stat())
    except (OSError, ValueError):
        return None
