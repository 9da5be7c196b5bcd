"""What a measurement was made on, and what else the machine did meanwhile."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil

PACKAGES = ("translane", "onnxruntime", "onnxruntime-gpu", "ctranslate2", "numpy")
_VNNI = ("amx_int8", "avx512_vnni", "avx_vnni")  # instructions that add up products of 8-bit integers in one go
GPU_QUERY = ("--query-gpu=name,driver_version,memory.total", "--format=csv,noheader")


def describe() -> dict[str, Any]:
    """Processor, cores, versions and time, as JSON values."""
    return {
        "processor": processor(),
        "gpus": gpus(),
        "cores": len(os.sched_getaffinity(0)),
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {each.name: each.version for each in importlib.metadata.distributions() if each.name in PACKAGES},
        "load": os.getloadavg()[0],
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


class Usage:
    """How much of the processors other programs have used since this was made. Readers judge timings by that."""

    def __init__(self) -> None:
        self._load = os.getloadavg()[0]
        self._begin = self._read()

    def so_far(self) -> dict[str, Any]:
        """Values for JSON.

        `seconds` that passed; `load_start` and `load_end`, the load averages of a minute; `others`, the share of the
        granted processors' time that went to other processes than this one and its descendants, and to other guests of
        the same host.
        """
        at, busy, own = (now - then for now, then in zip(self._read(), self._begin, strict=True))
        others = (busy - own) / (at * len(os.sched_getaffinity(0))) if at else 0.0
        return {
            "seconds": round(at, 1),
            "load_start": round(self._load, 2),
            "load_end": round(os.getloadavg()[0], 2),
            "others": round(min(1.0, max(0.0, others)), 3),
        }

    @staticmethod
    def _read() -> tuple[float, float, float]:
        """Seconds: the clock, processor time of all on the granted processors, and of this process and descendants."""
        granted = os.sched_getaffinity(0)
        busy = 0.0
        for number, spent in enumerate(psutil.cpu_times(percpu=True)):
            if number in granted:
                busy += spent.user + spent.nice + spent.system + spent.irq + spent.softirq + spent.steal
        own = 0.0
        this = psutil.Process()
        for process in (this, *this.children(recursive=True)):
            try:
                times = process.cpu_times()
            except psutil.Error:  # it has ended since it was listed
                continue
            own += times.user + times.system + times.children_user + times.children_system
        return time.monotonic(), busy, own


def family(pid: int) -> list[int]:
    """A process and its descendants that are alive."""
    try:
        return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    except psutil.NoSuchProcess:
        return [pid]


def cpu_seconds(processes: Iterable[int]) -> float:
    """Processor time of processes [seconds]; one that has ended does not count."""
    seconds = 0.0
    for pid in processes:
        with contextlib.suppress(OSError):
            # The clock of another process: clock_getcpuclockid(3). /proc counts in hundredths of a second.
            seconds += time.clock_gettime(~pid << 3 | 2)
    return seconds


def gpus() -> list[str]:
    """NVIDIA's GPUs: name, version of the driver and memory of each; none where nvidia-smi is missing or fails."""
    if (command := shutil.which("nvidia-smi")) is None:
        return []
    asked = subprocess.run([command, *GPU_QUERY], capture_output=True, text=True, check=False)
    return asked.stdout.strip().splitlines() if asked.returncode == 0 else []


def processor() -> str:
    """The name of the processor's model, where the system tells the name, and its widest instructions."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    features = next((line.split() for line in lines if line.startswith("flags")), [])
    widest = next((name for name in (*_VNNI, "avx512f", "avx2") if name in features), "")
    return f"{names[0] if names else platform.processor() or platform.machine()}{f' ({widest})' if widest else ''}"


def has_vnni(name: str) -> bool:
    """Whether the processor that `processor` named so has VNNI, or AMX, which does the same."""
    return any(instructions in name for instructions in _VNNI)
