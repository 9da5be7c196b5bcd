"""What tries CUDA proves what it says, and names what is wrong in one sentence."""

import subprocess
import sys

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


def test_right_numbers_pass():
    assert cuda_probe.is_right(run())


def test_an_output_that_nothing_writes_does_not_pass():
    _, output = cuda_probe.example()
    assert not cuda_probe.is_right(output)
    assert not cuda_probe.is_right(output[:0])


@pytest.mark.parametrize("name", "abc")
def test_inputs_that_do_not_arrive_do_not_pass(name):
    inputs, _ = cuda_probe.example()
    assert not cuda_probe.is_right(run(**{name: np.zeros_like(inputs[name])}))


def test_a_product_that_is_not_computed_or_transposed_does_not_pass():
    inputs, _ = cuda_probe.example()
    a, b, c = (inputs[name].astype(np.float32) for name in "abc")
    for product in (np.zeros_like(c), a, a.T @ b, a @ b.T, b @ a):
        assert not cuda_probe.is_right((product - c).max(axis=-1))


def test_another_reduction_does_not_pass():
    inputs, _ = cuda_probe.example()
    differences = inputs["a"] @ inputs["b"] - inputs["c"]
    for reduced in (differences.min(-1), differences.mean(-1), differences[:, 0], differences[:, -1]):
        assert not cuda_probe.is_right(reduced)


def test_all_numbers_are_exact_in_float16():
    inputs, _ = cuda_probe.example()
    product = inputs["a"].astype(np.int64) @ inputs["b"].astype(np.int64)
    assert product.min() > 0
    assert max(product.max(), inputs["c"].max()) <= 2**11


# Messages of onnxruntime 1.31 and of the libraries of CUDA 13, shortened.
FAILED_LOAD = (
    "Failed to load library /x/libonnxruntime_providers_cuda.so with error: {}: cannot open shared object file: No"
)
MESSAGES = {
    FAILED_LOAD.format("libcublasLt.so.13"): f"libcublasLt.so.13 is missing; {INSTALL} installs it",
    FAILED_LOAD.format("libcudart.so.13"): f"libcudart.so.13 is missing; {INSTALL} installs it",
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


def with_cuda(monkeypatch, run_on_cuda, *, driver=True):
    monkeypatch.setattr(sessions, "has_cuda", lambda: True)
    monkeypatch.setattr(sessions, "run_on_cuda", run_on_cuda)
    monkeypatch.setattr(cuda_probe, "_has_driver", lambda: driver)


class Gpu:
    """Of some compute capability, and a driver that may refuse the server's kernels."""

    def __init__(self, capability, refusal=None):
        self.compute_capability, self.refusal, self.closed = capability, refusal, False

    def load_kernels(self, code, names):
        if self.refusal:
            raise DeviceError(self.refusal)

    def close(self):
        self.closed = True


@pytest.mark.parametrize(("precision", "capability"), [("fp16", (7, 5)), ("fp16", (9, 0)), ("bf16", (8, 0))])
def test_a_gpu_that_computes_right_has_no_reason(monkeypatch, capsys, precision, capability):
    with_cuda(monkeypatch, lambda model, inputs, output: run(**inputs))
    gpu = Gpu(capability)
    monkeypatch.setattr(cuda_probe, "CudaRuntime", lambda: gpu)
    monkeypatch.setattr(sys, "argv", ["probe", precision])
    assert cuda_probe.main() == 0
    assert capsys.readouterr().out == ""
    assert gpu.closed


def test_a_gpu_without_bfloat16_is_a_reason_that_names_the_way_out(monkeypatch, capsys):
    with_cuda(monkeypatch, lambda model, inputs, output: run(**inputs))
    monkeypatch.setattr(cuda_probe, "CudaRuntime", lambda: Gpu((7, 5)))
    monkeypatch.setattr(sys, "argv", ["probe", "bf16"])
    assert cuda_probe.main() == 1
    assert capsys.readouterr().out == (
        "bf16 needs a GPU of compute capability 8.0 or newer, and this one has 7.5;"
        " export the checkpoint with --precision fp16\n"
    )


def test_a_driver_that_refuses_the_servers_kernels_is_a_reason(monkeypatch, capsys):
    with_cuda(monkeypatch, lambda model, inputs, output: run(**inputs))
    monkeypatch.setattr(cuda_probe, "CudaRuntime", lambda: Gpu((8, 6), "CUDA: cannot load the server's kernels: OLD"))
    assert cuda_probe.main() == 1
    assert capsys.readouterr().out == "cannot load the server's kernels: OLD\n"


@pytest.mark.parametrize("wrong", [1, np.nan])
def test_wrong_numbers_are_a_reason(monkeypatch, capsys, wrong):
    with_cuda(monkeypatch, lambda model, inputs, output: np.where(np.arange(8) == 5, np.float16(wrong), np.float16(0)))
    assert cuda_probe.main() == 1
    assert capsys.readouterr().out == "the GPU computes wrong numbers\n"


def test_a_provider_that_is_not_built_in_is_a_reason(monkeypatch):
    monkeypatch.setattr(sessions, "has_cuda", lambda: False)
    assert cuda_probe.find_reason() == (
        f"this onnxruntime has no CUDA provider; use {INSTALL} in place of translane[server]"
    )


def test_a_driver_that_is_missing_is_named_before_libraries_that_are(monkeypatch):
    with_cuda(monkeypatch, None, driver=False)
    assert cuda_probe.find_reason().startswith("there is no NVIDIA driver")


def test_a_library_that_only_the_log_names_is_named_and_nothing_else_is_printed():
    """Real descriptors, in a process of its own: what native code writes to standard error is looked through."""
    script = f"""
import os
from translane_server.runtime import sessions
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


def test_a_provider_that_does_not_load_for_no_known_reason_is_said_so(monkeypatch):
    def run_on_cuda(*_arguments):
        raise DeviceError("onnxruntime's CUDA provider does not load")

    with_cuda(monkeypatch, run_on_cuda)
    assert cuda_probe.find_reason() == "onnxruntime fails on CUDA: onnxruntime's CUDA provider does not load"
