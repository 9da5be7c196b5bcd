"""A device that runs the server's kernels on the CPU, from their source."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import translane_server
from helpers.store import stored

SOURCE = Path(translane_server.__file__).parent / "runtime" / "cuda" / "kernels.cu"
_HARNESS = Path(__file__).with_name("cuda_on_cpu.cpp")
_BORDER = np.frombuffer(b"behind what is allocated, nothing may write" * 3, np.uint8)  # and is looked at in `free`
_FLAGS = ["-std=c++17", "-O2", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]


def compile_kernels(folder, source=SOURCE):
    """Compile a kernels.cu to a library in `folder`; skips the test where there is no compiler."""
    compiler = shutil.which("g++") or pytest.skip("g++ is not installed: the kernels cannot run on the CPU")
    library = folder / "kernels.so"
    command = [compiler, *_FLAGS, f'-DKERNELS="{source}"', _HARNESS, "-o", library]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return ctypes.CDLL(library)


def kernels_library():
    """The server's kernels, compiled once for a test session."""

    def make(folder):
        folder.mkdir()
        compile_kernels(folder)

    return ctypes.CDLL(stored(("kernels", SOURCE.read_bytes(), _HARNESS.read_bytes()), make) / "kernels.so")


class CpuDevice:
    """Memory for kernels, and a `Launcher` that has run a kernel when `launch` returns.

    A launch fails where CUDA would, where a thread copies from or to memory that is not allocated, and where what a
    kernel copies depends on which thread comes first.
    """

    def __init__(self, library, seed=0):
        self.launches = []  # names, in order
        self._library = library
        self._library.argument_bytes.restype = ctypes.c_size_t
        self._seeds = np.random.default_rng(seed)
        self._memory = {}
        self._borders = {}

    def allocate(self, size):
        memory = np.zeros(size + 16 + len(_BORDER), np.uint8)
        memory = memory[-memory.ctypes.data % 16 :][: size + len(_BORDER)]
        memory[size:] = _BORDER
        self._borders[memory.ctypes.data] = memory[size:]
        memory = memory[:size]
        self._memory[memory.ctypes.data] = memory
        return memory.ctypes.data

    def free(self, address):
        del self._memory[address]
        assert np.array_equal(self._borders.pop(address), _BORDER), "something wrote behind what it was given"

    def view(self, address, dtype, *shape):
        """What was allocated at `address`, as an array."""
        return self._memory[address].view(dtype).reshape(shape)

    def launch(self, name, grid, block, arguments):
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
