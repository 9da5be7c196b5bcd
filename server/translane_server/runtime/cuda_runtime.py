"""The server's own calls to the CUDA runtime and driver, around one stream.

ONNX Runtime gets the same stream. So copies, kernels, the encoder and decoder steps run in the order in which they are
queued, and nothing needs to wait for another stream.

Runtime: https://docs.nvidia.com/cuda/cuda-runtime-api/, driver: https://docs.nvidia.com/cuda/cuda-driver-api/.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import suppress
from ctypes import byref, c_int, c_size_t, c_uint, c_ulonglong, c_void_p

import numpy as np
import numpy.typing as npt

from translane_server.core.errors import DeviceError

_RUNTIME = "libcudart.so.13"
_DRIVER = "libcuda.so.1"

_NON_BLOCKING = 1  # cudaStreamNonBlocking: the stream does not wait for the default one
_BY_ADDRESS = 4  # cudaMemcpyDefault: the addresses tell the direction of a copy
_CAPABILITY = 75, 76  # cudaDevAttrComputeCapabilityMajor and Minor
_THREAD_LOCAL = 1  # cudaStreamCaptureModeThreadLocal: other threads may call CUDA meanwhile

Extent = tuple[int, int, int]  # of a grid or a block: x, y, z


class CudaRuntime:
    """Memory of the first device, one stream, and the graphs and kernels that run on the stream.

    Every call raises DeviceError if CUDA reports a failure. Work is queued on the stream. An error in queued work
    surfaces in a later call, at the latest in `synchronize`.

    Attributes:
        stream: the handle of the stream.
    """

    def __init__(self) -> None:
        self._runtime = _load(_RUNTIME)
        self._driver = _load(_DRIVER)
        self._runtime.cudaGetErrorString.restype = ctypes.c_char_p
        self._device_memory: set[int] = set()
        self._pinned_memory: set[int] = set()
        self._functions: dict[str, c_void_p] = {}
        self._call("cudaSetDevice", c_int(0))
        handle = c_void_p()
        self._call("cudaStreamCreateWithFlags", byref(handle), c_uint(_NON_BLOCKING))
        assert handle.value is not None
        self.stream: int = handle.value

    @property
    def compute_capability(self) -> tuple[int, int]:
        """Compute capability of the device: (7, 5) is Turing, (8, 0) Ampere."""
        numbers = c_int(), c_int()
        for number, attribute in zip(numbers, _CAPABILITY, strict=True):
            self._call("cudaDeviceGetAttribute", byref(number), c_int(attribute), c_int(0))
        return numbers[0].value, numbers[1].value

    def allocate(self, size: int) -> int:
        """Reserve `size` bytes of device memory, and queue their zeroing; return the address."""
        address = c_void_p()
        self._call("cudaMalloc", byref(address), c_size_t(size), doing=f"cannot reserve {size >> 20} MiB")
        assert address.value is not None
        self._device_memory.add(address.value)
        self._call("cudaMemsetAsync", address, c_int(0), c_size_t(size), c_void_p(self.stream))
        return address.value

    def free(self, address: int) -> None:
        """Release memory from `allocate`. Failures are ignored, as in `close`."""
        self._device_memory.remove(address)
        with suppress(DeviceError):
            self._call("cudaFree", c_void_p(address))

    def allocate_pinned(self, size: int) -> npt.NDArray[np.uint8]:
        """Reserve `size` zeroed bytes of main memory that the device itself can copy from and to: [size].

        The memory lives until `free_pinned` or `close`, not as long as the array.
        """
        address = c_void_p()
        self._call("cudaHostAlloc", byref(address), c_size_t(size), c_uint(0), doing=f"cannot pin {size >> 20} MiB")
        assert address.value is not None
        self._pinned_memory.add(address.value)
        pinned: npt.NDArray[np.uint8] = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address.value))
        pinned.fill(0)
        return pinned

    def free_pinned(self, pinned: npt.NDArray[np.uint8]) -> None:
        """Release memory from `allocate_pinned`. Failures are ignored, as in `close`."""
        self._pinned_memory.remove(pinned.ctypes.data)
        with suppress(DeviceError):
            self._call("cudaFreeHost", c_void_p(pinned.ctypes.data))

    def copy(self, target: int, source: int, size: int) -> None:
        """Queue a copy of `size` bytes. Each address is in device memory or in pinned memory."""
        self._call(
            "cudaMemcpyAsync",
            c_void_p(target), c_void_p(source), c_size_t(size), c_int(_BY_ADDRESS), c_void_p(self.stream),
        )  # fmt: skip

    def synchronize(self) -> None:
        """Wait until all queued work is done."""
        self._call("cudaStreamSynchronize", c_void_p(self.stream), doing="work on the GPU failed")

    def begin_capture(self) -> None:
        """From now on, record queued work instead of running it."""
        self._call("cudaStreamBeginCapture", c_void_p(self.stream), c_int(_THREAD_LOCAL))

    def abandon_capture(self) -> None:
        """End a failed capture, and drop what it recorded."""
        graph = c_void_p()
        with suppress(DeviceError):  # CUDA reports the failure that the caller already knows
            self._call("cudaStreamEndCapture", c_void_p(self.stream), byref(graph))
        if graph.value:
            self._call("cudaGraphDestroy", graph)

    def end_capture(self) -> int:
        """End a capture. Return a handle of what was recorded, for `launch_graph`."""
        graph, executable = c_void_p(), c_void_p()
        self._call("cudaStreamEndCapture", c_void_p(self.stream), byref(graph))
        try:
            self._call("cudaGraphInstantiate", byref(executable), graph, c_ulonglong(0))
        finally:
            self._call("cudaGraphDestroy", graph)
        assert executable.value is not None
        return executable.value

    def launch_graph(self, graph: int) -> None:
        """Queue everything that a capture recorded."""
        self._call("cudaGraphLaunch", c_void_p(graph), c_void_p(self.stream))

    def destroy_graph(self, graph: int) -> None:
        """Release a graph from `end_capture`. Failures are ignored, as in `close`."""
        with suppress(DeviceError):
            self._call("cudaGraphExecDestroy", c_void_p(graph))

    def load_kernels(self, code: bytes, names: Sequence[str]) -> None:
        """Load the kernels `names` of a module, for `launch`. `code` is PTX that ends with a zero byte."""
        module = c_void_p()
        self._call_driver("cuModuleLoadData", byref(module), code, doing="cannot load the server's kernels")
        for name in names:
            function = c_void_p()
            self._call_driver("cuModuleGetFunction", byref(function), module, name.encode())
            self._functions[name] = function

    def launch(self, name: str, grid: Extent, block: Extent, arguments: Sequence[ctypes._CDataType]) -> None:
        """Queue a loaded kernel."""
        pointers = (c_void_p * len(arguments))(*[ctypes.addressof(argument) for argument in arguments])
        self._call_driver(
            "cuLaunchKernel",
            self._functions[name],
            *map(c_uint, (*grid, *block, 0)),
            c_void_p(self.stream), pointers, None,
        )  # fmt: skip

    def close(self) -> None:
        """Wait for queued work, and release the memory and the stream.

        Failures are ignored: after a fault of the device every call fails, and the fault itself was raised before.
        """
        releases: list[tuple[str, int]] = [("cudaStreamSynchronize", self.stream)]
        releases += [("cudaFree", address) for address in self._device_memory]
        releases += [("cudaFreeHost", address) for address in self._pinned_memory]
        for function, handle in [*releases, ("cudaStreamDestroy", self.stream)]:
            with suppress(DeviceError):
                self._call(function, c_void_p(handle))
        self._device_memory.clear()
        self._pinned_memory.clear()

    def _call(self, function: str, *arguments: object, doing: str = "") -> None:
        status = getattr(self._runtime, function)(*arguments)
        if status:
            self._runtime.cudaGetLastError()  # clears the error, which ONNX Runtime would find after its next launch
            reason = self._runtime.cudaGetErrorString(c_int(status)).decode()
            raise DeviceError(f"CUDA: {doing or f'{function} failed'}: {reason}")

    def _call_driver(self, function: str, *arguments: object, doing: str = "") -> None:
        status = getattr(self._driver, function)(*arguments)
        if status:
            name = ctypes.c_char_p()
            self._driver.cuGetErrorName(c_int(status), byref(name))
            reason = name.value.decode() if name.value else f"status {status}"
            raise DeviceError(f"CUDA: {doing or f'{function} failed'}: {reason}")


def _load(name: str) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(name)
    except OSError:
        raise DeviceError(f"CUDA: the library {name} is not installed") from None
