"""What a measurement was made on."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import time
from pathlib import Path
from typing import Any

PACKAGES = ("onnxruntime", "ctranslate2", "numpy")


def describe() -> dict[str, Any]:
    """Processor, cores, versions and time, as JSON values."""
    return {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: version for name in PACKAGES if (version := version_of(name))},
        "load": os.getloadavg()[0],
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def version_of(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def processor() -> str:
    """Its model's name where the system tells it."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    features = next((line.split() for line in lines if line.startswith("flags")), [])
    widest = next((name for name in ("amx_int8", "avx512_vnni", "avx512f", "avx2") if name in features), "")
    return f"{names[0] if names else platform.processor() or platform.machine()}{f' ({widest})' if widest else ''}"
