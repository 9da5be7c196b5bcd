"""What processes have used so far, read from Linux: processor time and memory (https://docs.kernel.org/filesystems/proc.html)."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator, Set
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")


class Resident(NamedTuple):
    """Resident memory of processes [bytes].

    Attributes:
        private: memory that one process alone has.
        proportional: the same, and of each page that several processes share an equal part.
    """

    private: int
    proportional: int


def descendants(pid: int) -> list[int]:
    """The processes that `pid` has started, and those that these have started."""
    parents: dict[int, list[int]] = {}
    for folder in _PROC.iterdir():
        if folder.name.isdigit() and (fields := _status(folder)):
            parents.setdefault(int(fields[1]), []).append(int(folder.name))
    found, waiting = [], [pid]
    while waiting:
        children = parents.get(waiting.pop(), [])
        found += children
        waiting += children
    return found


def cpu_seconds(pids: Iterable[int]) -> float:
    """Processor time of processes [seconds]; one that has ended does not count."""
    seconds = 0.0
    for pid in pids:
        try:
            # The clock of another process: clock_getcpuclockid(3). /proc counts in hundredths of a second.
            seconds += time.clock_gettime(~pid << 3 | 2)
        except OSError:
            continue
    return seconds


def main_thread_ticks(pid: int) -> int:
    """Processor time of the first thread of a process [clock ticks]; 0 if it has ended."""
    fields = _status(_PROC / str(pid) / "task" / str(pid))
    return sum(map(int, fields[11:13])) if fields else 0


def seconds_of(ticks: int) -> float:
    """Clock ticks in seconds."""
    return ticks / os.sysconf("SC_CLK_TCK")


def resident(pids: Iterable[int]) -> Resident:
    """The memory of processes."""
    private = proportional = 0
    for pid in pids:
        try:
            text = (_PROC / str(pid) / "smaps_rollup").read_text(encoding="ascii")
        except OSError:
            continue
        sizes = {name: 1024 * int(size) for name, size in re.findall(r"^(\w+): +(\d+) kB", text, re.MULTILINE)}
        private += sizes.get("Private_Clean", 0) + sizes.get("Private_Dirty", 0)
        proportional += sizes.get("Pss", 0)
    return Resident(private, proportional)


def are_grouped_by_session(pid: int) -> bool:
    """Whether the niceness of a process counts only within its session: sched(7), autogroups."""
    try:
        is_on = int((_PROC / "sys" / "kernel" / "sched_autogroup_enabled").read_text(encoding="ascii"))
        groups = (_PROC / str(pid) / "cgroup").read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return False
    found = [line.split(":", 2) for line in groups]
    own = [group for _, controllers, group in found if not controllers or "cpu" in controllers.split(",")]
    return bool(is_on) and all(group == "/" for group in own)


@contextmanager
def on_cores(cores: Set[int]) -> Iterator[None]:
    """Let this thread, and what it starts, run on some cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _status(folder: Path) -> list[str]:
    """The fields of a process's or thread's `stat`, from its state on; none if it has ended."""
    try:
        return (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
