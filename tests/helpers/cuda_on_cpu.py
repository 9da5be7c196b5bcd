"""A device that runs the server's kernels on the CPU, from their source."""

import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import translane_server
from helpers.store import stored
from translane_server.runtime.cuda_runtime import Extent

SOURCE = Path(translane_server.__file__).parent / "runtime" / "cuda" / "kernels.cu"
_HARNESS = Path(__file__).with_name("cuda_on_cpu.cpp")
_BORDER = np.frombuffer(b"behind what is allocated, nothing may write" * 3, np.uint8)  # `launch` and `free` check it
_FLAGS = ["-std=c++17", "-O2", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]


def kernels_library() -> ctypes.CDLL:
    """Return the server's kernels, compiled once for a test session. Skip the test if there is no compiler."""
    compiler = shutil.which("g++") or pytest.skip("g++ is not installed: the kernels cannot run on the CPU")

    def make(folder: Path) -> None:
        folder.mkdir()
        command = [compiler, *_FLAGS, f'-DKERNELS="{SOURCE}"', str(_HARNESS), "-o", str(folder / "kernels.so")]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    return ctypes.CDLL(str(stored(("kernels", SOURCE.read_bytes(), _HARNESS.read_bytes()), make) / "kernels.so"))


class CpuDevice:
    """Memory for kernels, and of `CudaRuntime` a `launch` that runs a kernel before it returns.

    A launch fails if it would fail on CUDA, if a thread copies from or to memory that is not allocated, and if the
    result depends on the order of threads.
    """

    def __init__(self, library: ctypes.CDLL, seed: int = 0) -> None:
        self.launches: list[str] = []  # names, in order
        self._library = library
        self._library.argument_bytes.restype = ctypes.c_size_t
        self._seeds = np.random.default_rng(seed)
        self._memory: dict[int, npt.NDArray[np.uint8]] = {}
        self._borders: dict[int, npt.NDArray[np.uint8]] = {}

    def allocate(self, size: int) -> int:
        memory = np.zeros(size + 16 + len(_BORDER), np.uint8)
        memory = memory[-memory.ctypes.data % 16 :][: size + len(_BORDER)]
        memory[size:] = _BORDER
        self._borders[memory.ctypes.data] = memory[size:]
        memory = memory[:size]
        self._memory[memory.ctypes.data] = memory
        return memory.ctypes.data

    def free(self, address: int) -> None:
        del self._memory[address]
        assert np.array_equal(self._borders.pop(address), _BORDER), "something wrote behind what it was given"

    def view(self, address: int, dtype: npt.DTypeLike, *shape: int) -> npt.NDArray[Any]:
        """Return the memory that was allocated at `address`, as an array."""
        return self._memory[address].view(dtype).reshape(shape)

    def launch(self, name: str, grid: Extent, block: Extent, arguments: Sequence[ctypes.Structure]) -> None:
        (argument,) = arguments
        assert self._library.argument_bytes(name.encode()) == ctypes.sizeof(argument) <= 4096
        assert min(grid) > 0
        assert max(grid[1:]) < 1 << 16
        assert 0 < block[0] <= 1024
        assert block[1:] == (1, 1)
        regions = [end for start, memory in self._memory.items() for end in (start, start + memory.size)]
        faults = self._library.run(
            name.encode(),
            (ctypes.c_uint * 3)(*grid),
            ctypes.c_uint(block[0]),
            ctypes.byref(argument),
            (ctypes.c_size_t * len(regions))(*regions),
            ctypes.c_size_t(len(self._memory)),
            ctypes.c_uint64(int(self._seeds.integers(1 << 62))),
        )
        assert not faults, "a thread touched memory that is not allocated, or that another thread touches"
        for border in self._borders.values():
            assert np.array_equal(border, _BORDER), "a thread wrote behind what is allocated"
        self.launches.append(name)
