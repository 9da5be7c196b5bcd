"""The memory of processes that share some of it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

_PROC = Path("/proc")


def shared_memory(pids: Iterable[int], proc: Path = _PROC) -> int:
    """Return the memory of processes and of their parents [bytes]. Memory that they share counts once.

    A replica may be forked from a process that has loaded the model; this process counts too, but not this program
    itself. The result is 0 on systems without /proc (https://docs.kernel.org/filesystems/proc.html).
    """
    running = {pid for pid in pids if pid > 0}
    running |= {_parent(proc / str(pid)) for pid in running}
    return sum(_proportional_set_size(proc / str(pid)) for pid in running - {0, 1, os.getpid()})


def _parent(process: Path) -> int:
    found = re.search(r"^PPid:\s*(\d+)", _read(process / "status"), re.MULTILINE)
    return int(found[1]) if found else 0


def _proportional_set_size(process: Path) -> int:
    """Memory of a process [bytes], with its share of each page that several processes have."""
    found = re.search(r"^Pss:\s*(\d+) kB", _read(process / "smaps_rollup"), re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:  # the process has ended
        return ""
