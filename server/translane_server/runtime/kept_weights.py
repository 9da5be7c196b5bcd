"""Keeps the weights that a process has mapped from files, whatever happens to the files.

ONNX Runtime copies some weights, and maps others from their file. Whoever writes to the file would change the mapped
weights with it, and whoever cuts it short would end the process at its next step. So the mapped parts move to memory
that belongs to no file. They are there once, however many graphs map them, and processes that fork share them.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

_MAPPINGS = Path("/proc/self/maps")
# Of mmap(2), on Linux.
_PROT_READ, _PROT_WRITE = 1, 2
_MAP_PRIVATE, _MAP_FIXED = 0x02, 0x10

_log = logging.getLogger(__name__)


class _Mapping(NamedTuple):
    address: int
    size: int  # bytes
    offset: int  # in the file
    file: str


def keep_mapped(files: Collection[Path]) -> None:
    """Move what this process has mapped of `files` to memory of its own. The addresses stay the same.

    Nothing may use these addresses meanwhile. Only Linux can do this; elsewhere nothing happens. Where a limit or a
    sandbox forbids it, the log says so, and the mappings stay.

    Raises:
        OSError: a file does not have the mapped parts any more.
    """
    if not hasattr(os, "memfd_create") or not _MAPPINGS.exists():
        return
    mappings = list(_mappings({os.path.realpath(file) for file in files}))
    with ExitStack() as opened:
        try:
            memory = _copied(mappings, opened)
        except OSError as error:
            if error.errno == errno.EFAULT:
                raise
            _log.warning("the weights stay mapped from their files: %s", error.strerror)
            return
        for mapping in mappings:
            _map(mapping, memory[mapping.file])


def _copied(mappings: Sequence[_Mapping], opened: ExitStack) -> dict[str, int]:
    """Copy mappings to files in memory, at their offsets; return the descriptors of these files, by their files.

    Raises:
        OSError: it is forbidden; or EFAULT: a part of a mapping has gone from its file. Reading it elsewhere would end
            this process by a signal.
    """
    memory: dict[str, int] = {}
    for mapping in mappings:
        if mapping.file not in memory:
            memory[mapping.file] = os.memfd_create("weights")
            opened.callback(os.close, memory[mapping.file])
        content = memoryview((ctypes.c_char * mapping.size).from_address(mapping.address))
        done = 0
        while done < mapping.size:
            done += os.pwrite(memory[mapping.file], content[done:], mapping.offset + done)
    return memory


def _map(mapping: _Mapping, descriptor: int) -> None:
    """Map the same part of another file in the place of a mapping."""
    mmap = ctypes.CDLL(None, use_errno=True).mmap
    mmap.restype = ctypes.c_void_p
    mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_longlong]
    access, kind = _PROT_READ | _PROT_WRITE, _MAP_PRIVATE | _MAP_FIXED
    if mmap(mapping.address, mapping.size, access, kind, descriptor, mapping.offset) != mapping.address:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _mappings(files: Collection[str]) -> Iterator[_Mapping]:
    """What this process has mapped of `files`; proc_pid_maps(5) has the form of the lines."""
    for line in _MAPPINGS.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[5] in files:
            start, end = (int(address, 16) for address in fields[0].split("-"))
            yield _Mapping(start, end - start, int(fields[2], 16), fields[5])
