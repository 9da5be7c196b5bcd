"""A processor without VNNI, on one that may have it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.runs import avx2

pytestmark = pytest.mark.slow  # a disassembler reads all of ONNX Runtime

ROOT = Path(__file__).parents[4]
# What a process finds: the flags, kernels as the server names them, how often the preloaded library has answered, and
# which of four sums of products ONNX Runtime gets right. Weights of 8 bits overflow where no VNNI adds them up.
PROGRAM = r"""
import ctypes, faulthandler, json, os, signal, sys
faulthandler.enable()
signal.signal(signal.SIGTRAP, signal.SIG_DFL)  # as a program might that minds its own signals
import numpy as np
import onnxruntime
from onnx import TensorProto, helper
from translane_server.core.machine import adds_int8_exactly, int8_kernels

def is_exact(largest, precise):
    width = 256
    a = np.full((4, width), 255, np.uint8)
    b = np.full((width, 16), largest, np.int8)
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["a", "b"], ["y"])], "product",
        [helper.make_tensor_value_info("a", TensorProto.UINT8, ["rows", width])],
        [helper.make_tensor_value_info("y", TensorProto.INT32, ["rows", 16])],
        [helper.make_tensor("b", TensorProto.INT8, b.shape, b.tobytes(), raw=True)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1" if precise else "0")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return bool((session.run(None, {"a": a})[0] == a.astype(np.int32) @ b.astype(np.int32)).all())

print(json.dumps({
    "folder": onnxruntime.__file__,
    "flags": next(line for line in open("/proc/cpuinfo") if line.startswith("flags")).split(),
    "vnni": adds_int8_exactly(),
    "kernels": int8_kernels(),
    "answers": ctypes.c_int.in_dll(ctypes.CDLL(None), "cpuid_answers").value,
    "8 bits": is_exact(127, False), "8 bits, precise": is_exact(127, True),
    "7 bits": is_exact(63, False), "7 bits, precise": is_exact(63, True)}))
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    try:
        return avx2.environment(tmp_path_factory.mktemp("avx2"))
    except avx2.CannotHide as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def found(environment):
    if "avx2" not in Path("/proc/cpuinfo").read_text(encoding="utf-8"):
        pytest.skip("the processor has no AVX2")
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_sums_of_int8_products_are_as_without_vnni(found):
    """With VNNI all four are right."""
    names = ("8 bits", "8 bits, precise", "7 bits", "7 bits, precise")
    assert {name: found[name] for name in names} == {
        "8 bits": False,
        "8 bits, precise": True,
        "7 bits": True,
        "7 bits, precise": True,
    }


def test_everything_says_so(found, environment):
    assert found["folder"].startswith(environment["PYTHONPATH"].split(os.pathsep)[0])
    assert found["answers"] > 0
    assert "avx2" in found["flags"]
    assert not [flag for flag in found["flags"] if flag.startswith(("avx512", "avx_vnni", "amx"))]
    assert (found["vnni"], found["kernels"]) == (False, "AVX2")


def test_a_breakpoint_of_another_origin_still_ends_a_process(environment):
    program = "import os, signal; os.kill(os.getpid(), signal.SIGTRAP)"
    done = subprocess.run([sys.executable, "-c", program], env=environment, check=False)
    assert done.returncode == -signal.SIGTRAP
