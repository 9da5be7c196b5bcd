"""Which device runs a model. Asked of a process of its own where it takes CUDA: what asks holds memory of the GPU."""

from __future__ import annotations

import subprocess
import sys
from typing import Literal

from translane_server.bundle import Precision
from translane_server.errors import DeviceError

Device = Literal["cpu", "cuda"]

_ASK = "import sys; from translane_server.sessions import cuda_answers; sys.exit(0 if cuda_answers() else 1)"
_PATIENCE = 120.0  # seconds; loading the libraries of CUDA takes some


def choose_device(requested: Literal["auto", "cpu", "cuda"], precision: Precision) -> Device:
    """The device to run a bundle of `precision` on; "auto" is CUDA where it is there and can run it.

    Raises:
        DeviceError: CUDA was asked for, and its provider is missing or cannot run this precision.
    """
    if requested == "auto":
        return "cuda" if precision == "fp16" and _cuda_answers() else "cpu"
    if requested == "cuda":
        if not _cuda_answers():
            raise DeviceError(
                "device cuda: this onnxruntime has no CUDA provider that works here; it takes an NVIDIA GPU and"
                " 'pip install translane[server-cuda]' in place of translane[server]"
            )
        if precision != "fp16":
            raise DeviceError(
                f"device cuda: the model bundle is {precision}, and CUDA runs fp16 bundles;"
                " export the checkpoint with --precision fp16"
            )
    return requested


def _cuda_answers() -> bool:
    try:
        asked = subprocess.run([sys.executable, "-P", "-c", _ASK], capture_output=True, timeout=_PATIENCE)  # noqa: S603 constant
    except subprocess.TimeoutExpired:
        return False
    return asked.returncode == 0
