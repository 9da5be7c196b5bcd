"""What there is to compute with: the CPUs granted to this process, and what they are able to.

Granted are those of its affinity, up to the quota of its control group (versions 1 and 2).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_MEMBERSHIP = Path("/proc/self/cgroup")
_MOUNT = Path("/sys/fs/cgroup")


def available_cpus(membership: Path = _MEMBERSHIP, mount: Path = _MOUNT) -> int:
    """Whole CPUs this process may keep busy, at least one.

    A fraction of a CPU is not counted: a thread more than the quota is paid for with throttling of all of them.
    """
    allowed = len(os.sched_getaffinity(0))
    return max(1, min([allowed, *(int(quota) for quota in _quotas(membership, mount))]))


def _quotas(membership: Path, mount: Path) -> Iterator[float]:
    """CPUs granted by each group on the way from this process's group to the root; any of them may be the tightest."""
    for line in _read(membership).splitlines():
        _, controllers, group = line.split(":", 2)
        if not controllers:
            for folder in _lineage(mount, group):
                quota, _, period = _read(folder / "cpu.max").partition(" ")
                yield from _ratio(quota, period)
        elif "cpu" in controllers.split(","):
            for root in (mount / "cpu", mount / controllers):
                for folder in _lineage(root, group):
                    yield from _ratio(_read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us"))


def _lineage(root: Path, group: str) -> Iterator[Path]:
    # Inside a container the group's path may be the host's, and only the root be mounted.
    folder = root / group.strip("/")
    while folder != root and folder.is_relative_to(root):
        yield folder
        folder = folder.parent
    yield root


def _ratio(quota: str, period: str) -> Iterator[float]:
    try:
        granted, of = int(quota), int(period)
    except ValueError:  # "max", or no such file
        return
    if granted > 0 and of > 0:
        yield granted / of


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def adds_int8_exactly(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether this processor is known to add up products of int8 in int32: those with x86's VNNI instructions are."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), [])
    return not {"avx512_vnni", "avx_vnni"}.isdisjoint(flags)
