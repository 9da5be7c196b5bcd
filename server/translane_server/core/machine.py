"""The CPUs and the memory that this process may use, the instructions that the CPUs have, and the memory of processes.

The limits are the smaller ones of the machine (or the CPU affinity) and of the control group (versions 1 and 2).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

_MEMBERSHIP = Path("/proc/self/cgroup")
_MOUNT = Path("/sys/fs/cgroup")
_PROC = Path("/proc")
_CPUINFO = _PROC / "cpuinfo"
_VERSION_2 = 2
_VNNI = frozenset({"avx512_vnni", "avx_vnni"})


def available_cpus(membership: Path = _MEMBERSHIP, mount: Path = _MOUNT) -> int:
    """The number of whole CPUs that this process may keep busy (≥ 1).

    Fractions are rounded down, because the kernel throttles all threads when they exceed the quota.
    """
    allowed = len(os.sched_getaffinity(0))
    return max(1, min([allowed, *(int(quota) for quota in _quotas(membership, mount))]))


def available_memory(membership: Path = _MEMBERSHIP, mount: Path = _MOUNT) -> int:
    """The memory that this process and its children may take together [bytes]."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for folder, version in _groups("memory", membership, mount):
        limit = _read(folder / ("memory.max" if version == _VERSION_2 else "memory.limit_in_bytes"))
        limits += [int(limit)] if limit.isdigit() else []
    return min(limits)


def _quotas(membership: Path, mount: Path) -> Iterator[float]:
    """The quotas [CPUs] of this process's group and of all its ancestors. Any of them may be the lowest."""
    for folder, version in _groups("cpu", membership, mount):
        if version == _VERSION_2:
            quota, _, period = _read(folder / "cpu.max").partition(" ")
            yield from _ratio(quota, period)
        else:
            yield from _ratio(_read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us"))


def _groups(controller: str, membership: Path, mount: Path) -> Iterator[tuple[Path, int]]:
    """The folders of this process's group and of all its ancestors, and the version of control groups of each."""
    for line in _read(membership).splitlines():
        _, controllers, group = line.split(":", 2)
        if not controllers:
            yield from ((folder, _VERSION_2) for folder in _lineage(mount, group))
        elif controller in controllers.split(","):
            for root in (mount / controller, mount / controllers):
                yield from ((folder, 1) for folder in _lineage(root, group))


def _lineage(root: Path, group: str) -> Iterator[Path]:
    # Inside a container the group's path may be the host's path, while only the root is mounted.
    folder = root / group.strip("/")
    while folder != root and folder.is_relative_to(root):
        yield folder
        folder = folder.parent
    yield root


def _ratio(quota: str, period: str) -> Iterator[float]:
    try:
        granted, of = int(quota), int(period)
    except ValueError:  # "max", or the file does not exist
        return
    if granted > 0 and of > 0:
        yield granted / of


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def adds_int8_exactly(cpuinfo: Path = _CPUINFO) -> bool:
    """Whether this processor is known to sum int8 products exactly, in int32: it has x86's VNNI instructions."""
    return not _VNNI.isdisjoint(_flags(cpuinfo))


@cache
def int8_kernels(cpuinfo: Path = _CPUINFO) -> str:
    """Return in words what multiplies int8 on this processor; empty where that is not known."""
    flags = _flags(cpuinfo)
    if not flags:  # a processor that is not x86
        return ""
    for flag, name in (("amx_int8", "AMX"), ("avx512_vnni", "AVX-512 VNNI"), ("avx_vnni", "AVX-VNNI")):
        if flag in flags:
            return name
    return "AVX2" if "avx2" in flags else "SSE"


def _flags(cpuinfo: Path) -> frozenset[str]:
    lines = _read(cpuinfo).splitlines()
    return next((frozenset(line.partition(":")[2].split()) for line in lines if line.startswith("flags")), frozenset())


def shared_memory(pids: Iterable[int], proc: Path = _PROC) -> int:
    """Return the memory of processes and of their parents [bytes]. Memory that they share counts once.

    A replica may be forked from a process that has loaded the model; this process counts too, but not this program
    itself. The result is 0 on systems without /proc (https://docs.kernel.org/filesystems/proc.html).
    """
    running = {pid for pid in pids if pid > 0}
    running |= {_number(proc / str(pid) / "status", "PPid") for pid in running}
    # Pss, the proportional set size, has a share of each page that several processes have.
    return sum(1024 * _number(proc / str(pid) / "smaps_rollup", "Pss") for pid in running - {0, 1, os.getpid()})


def _number(path: Path, name: str) -> int:
    found = re.search(rf"^{name}:\s*(\d+)", _read(path), re.MULTILINE)
    return int(found[1]) if found else 0
