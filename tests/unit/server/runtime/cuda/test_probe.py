"""What tries CUDA proves what it says, and names what is wrong in one sentence."""

import subprocess
import sys
from unittest.mock import Mock

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from helpers.sessions import open_session
from translane_server.core.errors import DeviceError
from translane_server.runtime import sessions
from translane_server.runtime.cuda import probe as cuda_probe

INSTALL = "'pip install translane[server-cuda]'"


def graph():
    """What the bytes of the probe are said to be."""
    matrices = [helper.make_tensor_value_info(name, TensorProto.FLOAT16, [8, 8]) for name in "abc"]
    nodes = [
        helper.make_node("MatMul", ["a", "b"], ["p"]),
        helper.make_node("Sub", ["p", "c"], ["d"]),
        helper.make_node("ReduceMax", ["d", "axes"], ["m"], keepdims=0),
    ]
    result = helper.make_tensor_value_info("m", TensorProto.FLOAT16, [8])
    axes = helper.make_tensor("axes", TensorProto.INT64, [1], [-1])
    made = helper.make_graph(nodes, "probe", matrices, [result], [axes])
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def run(**changed):
    """The probe's result on the CPU."""
    session = open_session(cuda_probe.PROBE)
    inputs, _ = cuda_probe.example()
    return session.run(None, inputs | changed)[0]


def test_the_bytes_are_the_graph_they_are_said_to_be():
    model = onnx.load_from_string(cuda_probe.PROBE)
    onnx.checker.check_model(model, full_check=True)
    assert model == graph()
    assert len(cuda_probe.PROBE) < 600


def test_right_numbers_alone_pass():
    inputs, output = cuda_probe.example()
    assert cuda_probe.is_right(run())
    a, b, c = (inputs[name].astype(np.float32) for name in "abc")
    differences = a @ b - c
    wrong = [
        *(output, output[:0]),  # nothing has written it
        *(run(**{name: np.zeros_like(inputs[name])}) for name in "abc"),  # an input did not arrive
        *((product - c).max(-1) for product in (np.zeros_like(c), a, a.T @ b, a @ b.T, b @ a)),
        *(differences.min(-1), differences.mean(-1), differences[:, 0], differences[:, -1]),
    ]
    assert not any(map(cuda_probe.is_right, wrong))


# Messages of onnxruntime 1.31 and of the libraries of CUDA 13, shortened.
FAILED_LOAD = (
    "Failed to load library /x/libonnxruntime_providers_cuda.so with error: {}: cannot open shared object file: No"
)
MESSAGES = {
    FAILED_LOAD.format("libcublasLt.so.13"): f"libcublasLt.so.13 is missing; {INSTALL} installs it",
    FAILED_LOAD.format("libcuda.so.1"): (
        "there is no NVIDIA driver (libcuda.so.1 is missing; a container gets it by --gpus all)"
    ),
    "running ReduceMax node. Name:'' Status Message: cuDNN is unavailable: dlopen failed for libcudnn.so:"
    " libcudnn.so: cannot open shared object file": f"libcudnn.so.9 is missing; {INSTALL} installs it",
    "CUDA failure 100: no CUDA-capable device is detected ; GPU=-1": "CUDA finds no GPU",
    "CUDA failure 35: CUDA driver version is insufficient for CUDA runtime version ; GPU=0": (
        "the NVIDIA driver is too old for this onnxruntime"
    ),
    **dict.fromkeys(
        (
            "CUDA error cudaErrorNoKernelImageForDevice:no kernel image is available for execution on the device",
            "CUDA failure 98: invalid device function ; GPU=0",
            "CUBLAS failure 8: the function requires an architectural feature absent from the device ; GPU=0",
            "CUDNN failure 3007: CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH ; GPU=0",
        ),
        "this onnxruntime has no kernels for the GPU; version 1.31 supports compute capability 7.5 to 9.0, and 12.0",
    ),
    "CUDA failure 2: out of memory ; GPU=0": "the GPU has no memory left",
    "1 : FAIL : /src/a.cc:154 CudaCall [with T = int]\nCUDA failure 719: unspecified launch failure ; GPU=0": (
        "onnxruntime fails on CUDA: CUDA failure 719: unspecified launch failure"
    ),
    "Error in execution: Non-zero status code. Status Message: no such kernel\nand more\nlines": (
        "onnxruntime fails on CUDA: no such kernel"
    ),
    "something else\nTraceback": "onnxruntime fails on CUDA: something else",
    "x" * 1000: f"onnxruntime fails on CUDA: {'x' * 200}",
    "": "onnxruntime fails on CUDA: it does not say why",
}


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message[:40])
def test_what_fails_is_named_in_a_sentence(message):
    assert cuda_probe.explain(message, message) == MESSAGES[message]


class Gpu:
    """Of some compute capability, and a driver that may refuse the server's kernels."""

    def __init__(self, capability, refusal=None):
        self.compute_capability, self.refusal, self.closed = capability, refusal, False

    def load_kernels(self, code, names):
        if self.refusal:
            raise DeviceError(self.refusal)

    def close(self):
        self.closed = True


@pytest.fixture
def probe(monkeypatch, capsys):
    """Runs the probe; returns what it prints."""

    def main(gpu=None, precision="fp16", run_on_cuda=lambda model, inputs, output: run(**inputs), *, driver=True):
        monkeypatch.setattr(sessions, "has_cuda", lambda: True)
        monkeypatch.setattr(sessions, "run_on_cuda", run_on_cuda)
        monkeypatch.setattr(cuda_probe, "_has_driver", lambda: driver)
        monkeypatch.setattr(cuda_probe, "CudaRuntime", lambda: gpu)
        monkeypatch.setattr(sys, "argv", ["probe", precision])
        code = cuda_probe.main()
        printed = capsys.readouterr().out
        assert code == bool(printed)
        return printed

    return main


@pytest.mark.parametrize(("precision", "capability"), [("fp16", (7, 5)), ("fp16", (9, 0)), ("bf16", (8, 0))])
def test_a_gpu_that_computes_right_has_no_reason(probe, precision, capability):
    gpu = Gpu(capability)
    assert probe(gpu, precision) == ""
    assert gpu.closed


def test_an_old_gpu_and_an_old_driver_are_reasons(probe):
    assert probe(Gpu((7, 5)), "bf16") == (
        "bf16 needs a GPU of compute capability 8.0 or newer, and this one has 7.5;"
        " export the checkpoint with --precision fp16\n"
    )
    gpu = Gpu((8, 6), "CUDA: cannot load the server's kernels: OLD")
    assert probe(gpu) == "cannot load the server's kernels: OLD\n"


@pytest.mark.parametrize("wrong", [1, np.nan])
def test_wrong_numbers_are_a_reason(probe, wrong):
    found = np.where(np.arange(8) == 5, np.float16(wrong), np.float16(0))
    assert probe(run_on_cuda=lambda model, inputs, output: found) == "the GPU computes wrong numbers\n"


def test_a_provider_that_is_not_there_or_does_not_load_is_a_reason(probe, monkeypatch):
    fail = Mock(side_effect=DeviceError("onnxruntime's CUDA provider does not load"))
    assert probe(run_on_cuda=fail) == "onnxruntime fails on CUDA: onnxruntime's CUDA provider does not load\n"
    assert probe(driver=False).startswith("there is no NVIDIA driver"), "before libraries that are missing, too"
    monkeypatch.setattr(sessions, "has_cuda", lambda: False)
    assert cuda_probe.find_reason() == (
        f"this onnxruntime has no CUDA provider; use {INSTALL} in place of translane[server]"
    )


def test_a_library_that_only_the_log_names_is_named_and_nothing_else_is_printed():
    """Real descriptors, in a process of its own: what native code writes to standard error is looked through."""
    script = f"""
import os
from translane_server.runtime import sessions
from translane_server.runtime.cuda import probe as cuda_probe

def run_on_cuda(*_arguments):
    print("Please follow https://example.org")
    os.write(2, {FAILED_LOAD.format("libcurand.so.10").encode()!r})
    raise RuntimeError("CUDA Provider not available")

sessions.has_cuda, sessions.run_on_cuda, cuda_probe._has_driver = lambda: True, run_on_cuda, lambda: True
raise SystemExit(cuda_probe.main())
"""
    asked = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (asked.returncode, asked.stderr) == (1, "")
    assert asked.stdout == f"libcurand.so.10 is missing; {INSTALL} installs it\n"
