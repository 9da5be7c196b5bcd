"""Which devices can run a bundle, and which of a version's bundles runs on them."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from translane_server.bundle.bundle import MANIFEST, Bundle, load_bundle, read_manifest
from translane_server.bundle.manifest import Precision
from translane_server.core.errors import BundleError, DeviceError
from translane_server.core.terminal import ending

Device = Literal["cpu", "cuda"]
RequestedDevice = Literal["auto", "cpu", "cuda"]

# The precisions that each device runs, best first.
ON_CUDA: tuple[Precision, ...] = ("fp16", "bf16")
ON_CPU: tuple[Precision, ...] = ("int8", "fp32", "fp16")

# The names of the folders that a model's folder may have, one for each precision.
PRECISIONS = tuple(dict.fromkeys((*ON_CUDA, *ON_CPU)))

_FOR_CUDA, _FOR_CPU = "--precision fp16", "--precision int8"

# -P: Python imports nothing from the working directory.
_PROBE = (sys.executable, "-P", "-m", "translane_server.runtime.cuda.probe")
_PATIENCE = 120.0  # seconds; the libraries of CUDA take a while to load

_log = logging.getLogger(__name__)


def choose_precision(requested: RequestedDevice, held: Sequence[Precision]) -> tuple[Precision, Device]:
    """Choose one of a model's bundles, and the device that runs it.

    "auto" means CUDA if there is a half-precision bundle and CUDA works; otherwise it means the CPU. If a
    half-precision bundle has to run on the CPU or is passed over, a warning says why CUDA is not used. `held` has the
    precision of each bundle, at least one.

    Raises:
        DeviceError: the requested device does not work, or cannot run any of the bundles.
    """
    names = " and ".join(held)
    why_not = ""
    for precision in ON_CUDA if requested != "cpu" else ():
        if precision in held:
            reason = why_no_cuda(precision)
            if not reason:
                return precision, "cuda"
            why_not = why_not or reason
    if requested == "cuda":
        wrong = (
            f"the model bundle is {names}, and CUDA runs fp16 and bf16 bundles; export the checkpoint with {_FOR_CUDA}"
        )
        raise DeviceError(f"device cuda: {why_not or wrong}")
    for_cpu = next((precision for precision in ON_CPU if precision in held), None)
    if for_cpu is None:
        raise DeviceError(
            f"device {requested}: the model bundle is {names}, and CPUs run fp32, int8 and fp16 bundles; export the"
            f" checkpoint with {_FOR_CPU}" + (f" (CUDA is not used: {why_not})" if why_not else "")
        )
    if why_not:
        _log.warning("running on the CPU, not on CUDA: %s", why_not)
    return for_cpu, "cpu"


def why_no_cuda(precision: Precision) -> str:
    """The reason why CUDA cannot run bundles of `precision` here, without a full stop; "" if CUDA can.

    The check takes seconds.
    """
    try:
        asked = subprocess.run(  # noqa: S603 constant
            [*_PROBE, precision], capture_output=True, text=True, errors="replace", timeout=_PATIENCE
        )
    except subprocess.TimeoutExpired:
        return f"CUDA did not answer within {_PATIENCE:.0f} seconds"
    if asked.returncode == 0:
        return ""
    reason = asked.stdout.strip().splitlines() if asked.returncode > 0 else ()
    return reason[-1] if reason else f"the process that tried CUDA {ending(asked.returncode)}"


def choose_bundle(folder: Path, requested: RequestedDevice) -> tuple[Bundle, Device]:
    """Load and check the bundle in `folder`; return the bundle and the device to run it on.

    A folder with a manifest is a bundle. Any other folder may hold one bundle for each precision, in a subfolder of
    that name. CUDA takes the first of fp16 and bf16 that is there, and a CPU the first of int8, fp32 and fp16.

    Raises:
        BundleError: there is no bundle; or a manifest or the chosen bundle is invalid.
        DeviceError: the requested device does not work, or cannot run any of the bundles.
    """
    for precision in PRECISIONS:
        entry = folder / precision
        if not entry.is_dir() and (entry.is_symlink() or entry.exists()):
            raise BundleError(f"model bundle {entry}: it should be a folder with a bundle of that precision")
    names = [precision for precision in PRECISIONS if (folder / precision).is_dir()]
    if not names or (folder / MANIFEST).exists():
        bundle = load_bundle(folder)
        return bundle, choose_precision(requested, [bundle.manifest.precision])[1]
    for name in names:
        manifest = read_manifest(folder / name)
        if manifest.precision != name:
            raise BundleError(
                f"model bundle {folder / name}: its precision is {manifest.precision}, unlike its folder's name"
            )
    precision, device = choose_precision(requested, names)
    _log.info("model bundle %s: taking %s of %s", folder, precision, ", ".join(names))
    return load_bundle(folder / precision), device
