"""Tries CUDA, and prints why CUDA cannot be used: `python -m translane_server.runtime.cuda.probe fp16`.

A listed provider, a visible GPU and free memory do not prove that a bundle runs. onnxruntime may have no kernels for
the GPU, and onnxruntime loads cuDNN only when a graph needs it. So the probe runs a small graph with what bundles need:
half precision, cuBLAS for a product, and cuDNN for a maximum. Then the probe loads the server's own kernels.

A process that tries CUDA keeps GPU memory until it ends, and a broken driver may crash the process. So the server runs
the probe in a process of its own (`translane_server.bundle.devices`).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from translane_server.core.errors import DeviceError
from translane_server.runtime import sessions
from translane_server.runtime.cuda.kernels import NAMES, load_ptx
from translane_server.runtime.cuda_runtime import CudaRuntime

# The graph m = ReduceMax(MatMul(a, b) - c) over each line: a, b and c are float16 [8, 8], m is [8]. It is written as
# bytes, because the server does not depend on the package onnx. A test compares the bytes with the graph.
PROBE = (
    b"\x08\x09:\xbc\x01"
    b"\x0a\x11\x0a\x01a\x0a\x01b\x12\x01p\x22\x06MatMul"
    b"\x0a\x0e\x0a\x01p\x0a\x01c\x12\x01d\x22\x03Sub"
    b"\x0a\x28\x0a\x01d\x0a\x04axes\x12\x01m\x22\x09ReduceMax*\x0f\x0a\x08keepdims\x18\x00\xa0\x01\x02"
    b"\x12\x05probe*\x16\x08\x01\x10\x07:\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01B\x04axes"
    b"Z\x13\x0a\x01a\x12\x0e\x0a\x0c\x08\x0a\x12\x08\x0a\x02\x08\x08\x0a\x02\x08\x08"
    b"Z\x13\x0a\x01b\x12\x0e\x0a\x0c\x08\x0a\x12\x08\x0a\x02\x08\x08\x0a\x02\x08\x08"
    b"Z\x13\x0a\x01c\x12\x0e\x0a\x0c\x08\x0a\x12\x08\x0a\x02\x08\x08\x0a\x02\x08\x08"
    b"b\x0f\x0a\x01m\x12\x0a\x0a\x08\x08\x0a\x12\x04\x0a\x02\x08\x08"
    b"B\x04\x0a\x00\x10\x14"
)

_SIZE = 8
_BFLOAT16_SINCE = (8, 0)
_LONGEST = 200  # characters of onnxruntime's message that are shown
_INSTALL = "'pip install translane[server-cuda]'"
_NO_PROVIDER = f"this onnxruntime has no CUDA provider; use {_INSTALL} in place of translane[server]"
_DRIVER = "libcuda.so.1"
_NO_DRIVER = f"there is no NVIDIA driver ({_DRIVER} is missing; a container gets it by --gpus all)"
_NO_LIBRARY = re.compile(r"(lib[\w.+-]+\.so[.\d]*): cannot open shared object file")
_VERSIONED = {"libcudnn.so": "libcudnn.so.9"}  # onnxruntime looks for several names, and reports the last
_FAILURE = re.compile(r"\w+ failure \d+: [^;\n]*[^;\s]")  # "CUDA failure 719: unspecified launch failure"
# Patterns of the messages of CUDA, cuBLAS and cuDNN, and the reason for each. The first match counts.
_REASONS = (
    (r"no CUDA-capable device|cudaErrorNoDevice", "CUDA finds no GPU"),
    (
        r"driver version is insufficient|cudaErrorInsufficientDriver",
        "the NVIDIA driver is too old for this onnxruntime",
    ),
    (
        r"no kernel image|invalid device function|arch[ _]mismatch|architectural feature|CUBLAS failure 8\b",
        "this onnxruntime has no kernels for the GPU; version 1.31 supports compute capability 7.5 to 9.0, and 12.0",
    ),
    (r"out of memory|cudaErrorMemoryAllocation", "the GPU has no memory left"),
)


def main() -> int:
    """Print nothing and return 0 if CUDA works; otherwise print the reason and return 1.

    The argument is the precision of the bundle to run: fp16 or bf16.
    """
    reason = find_reason() or find_reason_of_device(sys.argv[-1])
    if reason:
        print(reason)
    return 1 if reason else 0


def find_reason() -> str:
    """Return why CUDA cannot run a bundle here, as a sentence without its full stop; "" if CUDA can."""
    if not sessions.has_cuda():
        return _NO_PROVIDER
    if not _has_driver():
        return _NO_DRIVER
    failure: Exception | None = None
    found = np.full(0, np.nan, np.float16)
    with _standard_error() as written:
        try:
            found = sessions.run_on_cuda(PROBE, *example())
        except Exception as error:  # noqa: BLE001 - onnxruntime's exceptions have no base class of their own
            failure = error
    if failure is not None:
        # Only the log says what is wrong with a library. The log comes first, because the error follows from it.
        return explain(f"{''.join(written)}\n{failure}", str(failure))
    return "" if is_right(found) else "the GPU computes wrong numbers"


def find_reason_of_device(precision: str) -> str:
    """Return why the device cannot run bundles of `precision` or the server's own kernels; "" if it can."""
    try:
        runtime = CudaRuntime()
        runtime.load_kernels(load_ptx(), NAMES)
        capability = runtime.compute_capability
        runtime.close()
    except DeviceError as error:
        return str(error).removeprefix("CUDA: ")
    if precision == "bf16" and capability < _BFLOAT16_SINCE:
        return (
            "bf16 needs a GPU of compute capability 8.0 or newer, and this one has"
            f" {capability[0]}.{capability[1]}; export the checkpoint with --precision fp16"
        )
    return ""


def example() -> tuple[dict[str, Any], Any]:
    """Return inputs whose result is zeros, and an output that is full of NaN before the run.

    All numbers are integers that float16 holds exactly. In each line, `c` is the product plus each of 0 to 7 once. So
    the maximum of a line is 0. A wrong product or a wrong maximum gives another number. An output that is not written
    stays NaN. Stand-ins for CUDA's libraries run no kernels and return zeros. With stand-ins, a pass proves only that
    the run has no error.
    """
    line, column = np.indices((_SIZE, _SIZE))
    a, b = (line + 2 * column) % 5 + 1, (3 * line + column) % 7 + 1
    c = a @ b + (line + column) % _SIZE
    inputs = {name: values.astype(np.float16) for name, values in (("a", a), ("b", b), ("c", c))}
    return inputs, np.full(_SIZE, np.nan, np.float16)


def is_right(found: Any) -> bool:
    """Whether `found` is the result of `example`."""
    return bool(found.shape == (_SIZE,) and np.all(found == 0))


def explain(text: str, otherwise: str) -> str:
    """Return the reason that `text`, a log and an error, gives. If it gives none, return what `otherwise` says."""
    if missing := _NO_LIBRARY.search(text):
        library = _VERSIONED.get(missing[1], missing[1])
        return _NO_DRIVER if library == _DRIVER else f"{library} is missing; {_INSTALL} installs it"
    for pattern, reason in _REASONS:
        if re.search(pattern, text, re.IGNORECASE):
            return reason
    failure = _FAILURE.search(otherwise)
    message = failure[0] if failure else otherwise.strip().partition("\n")[0].rpartition("Status Message: ")[2]
    return f"onnxruntime fails on CUDA: {message[:_LONGEST] or 'it does not say why'}"


def _has_driver() -> bool:
    """Whether the driver's library is there. An error would name other missing libraries before the driver's."""
    if sys.platform != "linux":
        return True
    try:
        ctypes.CDLL(_DRIVER)
    except OSError as error:
        return not _NO_LIBRARY.match(str(error))
    return True


@contextlib.contextmanager
def _standard_error() -> Iterator[list[str]]:
    """Collect what this process and its libraries write to standard error, and what Python prints."""
    written: list[str] = []
    kept = os.dup(2)
    with tempfile.TemporaryFile() as file, contextlib.redirect_stdout(sys.stderr):
        os.dup2(file.fileno(), 2)
        try:
            yield written
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            file.seek(0)
            written.append(file.read().decode(errors="replace"))


if __name__ == "__main__":
    sys.exit(main())
