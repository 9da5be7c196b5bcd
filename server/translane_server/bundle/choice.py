"""Chooses the bundle to serve. A model's folder may hold several bundles, one for each precision."""

from __future__ import annotations

import logging
from pathlib import Path

from translane_server.bundle.bundle import MANIFEST, Bundle, load_bundle, read_manifest
from translane_server.bundle.devices import ON_CPU, ON_CUDA, Device, RequestedDevice, choose_device, choose_precision
from translane_server.core.errors import BundleError

# The names of the folders that a model's folder may have, one for each precision.
PRECISIONS = tuple(dict.fromkeys((*ON_CUDA, *ON_CPU)))

_log = logging.getLogger(__name__)


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
        return bundle, choose_device(requested, bundle.manifest.precision)
    for name in names:
        manifest = read_manifest(folder / name)
        if manifest.precision != name:
            raise BundleError(
                f"model bundle {folder / name}: its precision is {manifest.precision}, unlike its folder's name"
            )
    precision, device = choose_precision(requested, names)
    _log.info("model bundle %s: taking %s of %s", folder, precision, ", ".join(names))
    return load_bundle(folder / precision), device
