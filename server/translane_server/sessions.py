"""A bundle's graphs in ONNX Runtime, on a CPU or a CUDA device. The only module that imports onnxruntime."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

# Some builds of ONNX Runtime report their use to their vendor unless this is set before they are loaded.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
import onnxruntime

from translane_server.bundle import Bundle
from translane_server.cpus import adds_int8_exactly
from translane_server.devices import Device
from translane_server.errors import BundleError, DeviceError

_CUDA_PROVIDER = "CUDAExecutionProvider"


def cuda_answers() -> bool:
    """Whether there is a CUDA device that works: the provider is listed on machines that have none, too."""
    if _CUDA_PROVIDER not in onnxruntime.get_available_providers():
        return False
    try:
        _load_cuda()
        onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros(1, np.float32), "cuda", 0)
    except Exception:  # noqa: BLE001 - whatever goes wrong here, CUDA is not to be had
        return False
    return True


def _load_cuda() -> None:
    """Load CUDA's libraries from where pip puts them, which nothing else looks at; once in each process is enough."""
    onnxruntime.preload_dlls(directory="")


class Sessions:
    """The bundle's graphs, loaded. On one operator thread a graph runs on the thread that calls it.

    Args:
        bundle: what to load.
        device: where to run it.
        threads: threads of one operator.
        spinning: whether idle operator threads spin before they sleep: faster steps, and processor time spent idle.
        profile: a file name prefix for onnxruntime's profiles, or None.

    Attributes:
        encoder: the session of the encoder.
        decoder: the session of the decoder.
        alignment: the session of the alignment graph, or None where the bundle has none.

    Raises:
        BundleError: onnxruntime cannot load a graph.
        DeviceError: the device is not there.
    """

    def __init__(
        self,
        bundle: Bundle,
        *,
        device: Device = "cpu",
        threads: int,
        spinning: bool = False,
        profile: str | None = None,
    ) -> None:
        self.bundle = bundle
        self.device: Device = device
        self._threads = threads
        self._spinning = spinning
        if device == "cuda":
            _load_cuda()
        graphs = bundle.manifest.graphs
        self.encoder = self._load(graphs.encoder.file, profile and f"{profile}-encoder")
        self.decoder = self._load(graphs.decoder.file, profile and f"{profile}-decoder")
        self.alignment: Any = None
        if graphs.alignment:
            self.alignment = self._load(graphs.alignment.file, profile and f"{profile}-alignment")

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Any:
        """An OrtValue in the device's memory, not filled."""
        return onnxruntime.OrtValue.ortvalue_from_shape_and_type(list(shape), dtype, self.device, 0)

    def _load(self, name: str, profile: str | None) -> Any:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self._threads
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "1" if self._spinning else "0")
        # On x86 processors without VNNI, products of int8 are otherwise added up in int16, which overflows: wrong sums,
        # in another way for another number of rows. Where there is VNNI it would take twice the time for nothing.
        options.add_session_config_entry("session.x64quantprecision", "0" if adds_int8_exactly() else "1")
        options.log_severity_level = 3  # errors
        if profile:
            options.enable_profiling = True
            options.profile_file_prefix = profile
        providers = ["CPUExecutionProvider"]
        if self.device == "cuda":
            providers.insert(0, _CUDA_PROVIDER)
        try:
            session = onnxruntime.InferenceSession(str(self.bundle.path(name)), options, providers=providers)
        except Exception as error:  # noqa: BLE001 - onnxruntime's exceptions share no base of their own
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise BundleError(f"model bundle {self.bundle.folder}: {name} does not load: {reason}") from None
        if self.device == "cuda" and _CUDA_PROVIDER not in session.get_providers():
            raise DeviceError("device cuda: onnxruntime's CUDA provider did not load; are its CUDA libraries there?")
        return session
