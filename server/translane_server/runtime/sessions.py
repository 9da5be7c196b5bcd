"""Sessions of ONNX Runtime over the graphs of a bundle.

ONNX Runtime copies some weights, and maps others from their file. Whoever writes to the file would change the mapped
weights with it, and whoever cuts it short would end the process at its next step. So the mapped parts move to memory
that belongs to no file. They are there once, however many graphs map them, and processes that fork share them.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

# Some builds of ONNX Runtime send usage data to their vendor unless this is set before the import.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
import onnxruntime

from translane_server.bundle.bundle import Bundle
from translane_server.bundle.devices import Device
from translane_server.bundle.manifest import Graph
from translane_server.bundle.shortlist import Shortlist, load_shortlist
from translane_server.core.errors import BundleError, DeviceError, first_line
from translane_server.core.machine import adds_int8_exactly
from translane_server.runtime.cuda_runtime import CudaRuntime

_MAPPINGS = Path("/proc/self/maps")
# Of mmap(2), on Linux.
_PROT_READ, _PROT_WRITE = 1, 2
_MAP_PRIVATE, _MAP_FIXED = 0x02, 0x10

_log = logging.getLogger(__name__)


class _Mapping(NamedTuple):
    address: int
    size: int  # bytes
    offset: int  # in the file
    file: str


def keep_mapped(files: Collection[Path]) -> None:
    """Move what this process has mapped of `files` to memory of its own. The addresses stay the same.

    Nothing may use these addresses meanwhile. Only Linux can do this; elsewhere nothing happens. Where a limit or a
    sandbox forbids it, the log says so, and the mappings stay.

    Raises:
        OSError: a file does not have the mapped parts any more.
    """
    if not hasattr(os, "memfd_create") or not _MAPPINGS.exists():
        return
    mappings = list(_mappings({os.path.realpath(file) for file in files}))
    with ExitStack() as opened:
        try:
            memory = _copied(mappings, opened)
        except OSError as error:
            if error.errno == errno.EFAULT:
                raise
            _log.warning("the weights stay mapped from their files: %s", error.strerror)
            return
        for mapping in mappings:
            _map(mapping, memory[mapping.file])


def _copied(mappings: Sequence[_Mapping], opened: ExitStack) -> dict[str, int]:
    """Copy mappings to files in memory, at their offsets; return the descriptors of these files, by their files.

    Raises:
        OSError: it is forbidden; or EFAULT: a part of a mapping has gone from its file. Reading it elsewhere would end
            this process by a signal.
    """
    memory: dict[str, int] = {}
    for mapping in mappings:
        if mapping.file not in memory:
            memory[mapping.file] = os.memfd_create("weights")
            opened.callback(os.close, memory[mapping.file])
        content = memoryview((ctypes.c_char * mapping.size).from_address(mapping.address))
        done = 0
        while done < mapping.size:
            done += os.pwrite(memory[mapping.file], content[done:], mapping.offset + done)
    return memory


def _map(mapping: _Mapping, descriptor: int) -> None:
    """Map the same part of another file in the place of a mapping."""
    mmap = ctypes.CDLL(None, use_errno=True).mmap
    mmap.restype = ctypes.c_void_p
    mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_longlong]
    access, kind = _PROT_READ | _PROT_WRITE, _MAP_PRIVATE | _MAP_FIXED
    if mmap(mapping.address, mapping.size, access, kind, descriptor, mapping.offset) != mapping.address:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _mappings(files: Collection[str]) -> Iterator[_Mapping]:
    """What this process has mapped of `files`; proc_pid_maps(5) has the form of the lines."""
    for line in _MAPPINGS.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[5] in files:
            start, end = (int(address, 16) for address in fields[0].split("-"))
            yield _Mapping(start, end - start, int(fields[2], 16), fields[5])


_CUDA_PROVIDER = "CUDAExecutionProvider"
# The attention kernels that onnxruntime may choose from, as bits of its provider option sdpa_kernel: Flash (1), memory
# efficient (2), TensorRT's (4), and the unfused one (16). cuDNN's (8) is left out: it builds a graph for every new
# shape while requests wait.
_ATTENTION_KERNELS = 1 | 2 | 4 | 16


def has_cuda() -> bool:
    """Whether this onnxruntime is built with CUDA. This says nothing about a GPU in the machine."""
    return _CUDA_PROVIDER in onnxruntime.get_available_providers()


def run_on_cuda(model: bytes, inputs: Mapping[str, Any], output: Any) -> Any:
    """Run a model with every node on CUDA, and return its only output, which holds `output` before the run.

    Raises:
        Exception: the run fails. onnxruntime's exceptions have no base class of their own.
    """
    _load_cuda()
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    session = onnxruntime.InferenceSession(model, options, providers=[_CUDA_PROVIDER])
    if _CUDA_PROVIDER not in session.get_providers():
        raise DeviceError("onnxruntime's CUDA provider does not load")
    binding = session.io_binding()
    for name, array in inputs.items():
        binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array, "cuda", 0))
    written = onnxruntime.OrtValue.ortvalue_from_numpy(output, "cuda", 0)
    binding.bind_ortvalue_output(session.get_outputs()[0].name, written)
    session.run_with_iobinding(binding)
    return written.numpy()


def _load_cuda() -> None:
    """Load CUDA's libraries from where pip puts them; the system does not look there. Once per process is enough."""
    onnxruntime.preload_dlls(directory="")


class Sessions:
    """The bundle's graphs, loaded. With one operator thread, a graph runs on the thread that calls it.

    Graphs that the bundle lacks are None, and so are those of alignments and shortlists with `plain_steps_only`.
    `profile` is a file name prefix for onnxruntime's profiles.

    Raises:
        BundleError: onnxruntime cannot load a graph.
        DeviceError: the device is not available.
    """

    def __init__(
        self,
        bundle: Bundle,
        *,
        device: Device = "cpu",
        threads: int,
        profile: str | None = None,
        plain_steps_only: bool = False,
    ) -> None:
        self.bundle = bundle
        self.device: Device = device
        self.threads = threads
        self.cuda: CudaRuntime | None = None  # with the stream that the graphs run on
        self._run_options = onnxruntime.RunOptions()
        if device == "cuda":
            _load_cuda()
            self.cuda = CudaRuntime()
            # A run is queued, and the host goes on.
            self._run_options.add_run_config_entry("disable_synchronize_execution_providers", "1")
        graphs = bundle.manifest.graphs

        def load(name: str, graph: Graph | None) -> Any:
            return self._load(graph, profile and f"{profile}-{name}") if graph else None

        self.encoder = load("encoder", graphs.encoder)
        self.decoder = load("decoder", graphs.decoder)
        self.greedy = load("greedy", graphs.greedy)
        self.alignment: Any = None if plain_steps_only else load("alignment", graphs.alignment)
        self.shortlist: tuple[Any, Shortlist] | None = None
        if graphs.shortlist and not plain_steps_only:
            self.shortlist = load("shortlist", graphs.shortlist), load_shortlist(bundle)
        keep_mapped([bundle.path(name) for name in bundle.manifest.model_files])

    def bound_run(self, session: Any, binding: Any) -> Callable[[], None]:
        """Return a function that runs one of the graphs over `binding`.

        onnxruntime's own method looks for a captured WebGPU graph at each run. That takes 3 µs, and 45 µs with options
        that name none; without options, 5 µs go to an error that nobody sees. A step of a small model takes 120 µs.
        What that method calls has private names, so a release that names it otherwise runs by the method itself.
        """
        if hasattr(session, "_sess") and hasattr(binding, "_iobinding"):
            return partial(session._sess.run_with_iobinding, binding._iobinding, self._run_options)
        return partial(session.run_with_iobinding, binding, self._run_options)

    def close(self) -> None:
        """Release the graphs, and then the device."""
        self.encoder = self.decoder = self.greedy = self.alignment = self.shortlist = None
        if self.cuda:
            self.cuda.close()

    def _load(self, graph: Graph, profile: str | None) -> Any:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # idle threads leave the processors
        # Without this setting, x86 processors without VNNI add up int8 products in int16. The sums overflow, and the
        # wrong results depend on the number of rows. With VNNI the sums are exact anyway; the setting doubles the time.
        # Weights of 7 bits have exact sums either way, and onnxruntime gives them the fast kernels despite the setting.
        options.add_session_config_entry("session.x64quantprecision", "0" if adds_int8_exactly() else "1")
        options.log_severity_level = 4  # errors are raised as well
        if profile:
            options.enable_profiling = True
            options.profile_file_prefix = profile
        providers: list[Any] = ["CPUExecutionProvider"]
        if self.cuda:
            provider_options = {"user_compute_stream": str(self.cuda.stream), "sdpa_kernel": str(_ATTENTION_KERNELS)}
            providers.insert(0, (_CUDA_PROVIDER, provider_options))
        try:
            session = onnxruntime.InferenceSession(str(self.bundle.path(graph.file)), options, providers=providers)
        except Exception as error:  # noqa: BLE001 - onnxruntime's exceptions have no base class of their own
            raise BundleError(
                f"model bundle {self.bundle.folder}: {graph.file} does not load: {first_line(error)}"
            ) from None
        if self.cuda and _CUDA_PROVIDER not in session.get_providers():
            raise DeviceError("device cuda: onnxruntime's CUDA provider did not load; are its CUDA libraries there?")
        for kind, found, listed in (
            ("inputs", session.get_inputs(), graph.inputs),
            ("outputs", session.get_outputs(), graph.outputs),
        ):
            if different := {tensor.name for tensor in found} ^ {tensor.name for tensor in listed}:
                raise BundleError(
                    f"model bundle {self.bundle.folder}: {graph.file} has other {kind} than the manifest says:"
                    f" {min(different)} is only in one of them"
                )
        return session


@dataclass(frozen=True)
class AllThreads:
    """The same graphs on more threads, for the times in which no other replica needs the processors."""

    sessions: Sessions  # of plain steps
    are_free: Callable[[], bool]  # whether the graphs may run now. It is asked before every run
