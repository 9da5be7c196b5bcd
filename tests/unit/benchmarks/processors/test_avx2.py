"""A processor without VNNI, on one that may have it."""

import ctypes
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.processors import avx2

pytestmark = pytest.mark.slow  # a disassembler reads all of ONNX Runtime

ROOT = Path(__file__).parents[4]
ALL = 0xFFFFFFFF
# What a process finds: the flags, kernels as the server names them, how often the preloaded library has answered, and
# which of four sums of products ONNX Runtime gets right. Weights of 8 bits overflow where no VNNI adds them up.
PROGRAM = r"""
import ctypes, faulthandler, json, os, signal, sys
faulthandler.enable()
signal.signal(signal.SIGTRAP, signal.SIG_DFL)  # as a program might that minds its own signals
import numpy as np
import onnxruntime
from onnx import TensorProto, helper
from translane_server.cpus import adds_int8_exactly, int8_kernels

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


def test_what_is_made_serves_again(environment, monkeypatch):
    folder = Path(environment["PYTHONPATH"].split(os.pathsep)[0]).parent
    monkeypatch.setattr(avx2, "_replace_instructions", None)
    again = avx2.environment(folder, {"PYTHONPATH": "there", "OTHER": "kept"})
    assert again["PYTHONPATH"].endswith(os.pathsep + "there")
    assert (again["LD_PRELOAD"], again["OTHER"]) == (environment["LD_PRELOAD"].split(os.pathsep)[0], "kept")


def test_only_what_is_hidden_is_taken_from_an_answer(environment):
    names = ("eax", "ebx", "ecx", "edx")

    class Registers(ctypes.Structure):
        _fields_ = [(name, ctypes.c_uint32) for name in names]

    # Loaded in this process, the library takes SIGTRAP, which nothing here uses.
    library = ctypes.CDLL(environment["LD_PRELOAD"].split(os.pathsep)[0])
    kept = {}
    for leaf, subleaf in ((1, 0), (7, 0), (7, 1), (7, 2)):
        registers = Registers(ALL, ALL, ALL, ALL)
        library.hide(leaf, subleaf, ctypes.byref(registers))
        kept[leaf, subleaf] = registers
    for untouched in ((1, 0), (7, 2)):
        assert [getattr(kept[untouched], name) for name in names] == [ALL] * 4
    features, more = kept[7, 0], kept[7, 1]
    assert features.ebx >> 5 & 1, "AVX2 stays"
    assert not features.ebx >> 16 & 1, "AVX512F goes"
    assert not features.ecx >> 11 & 1, "AVX512_VNNI goes"
    assert not features.edx >> 24 & 3, "AMX-TILE and AMX-INT8 go"
    assert not more.eax >> 4 & 1, "AVX-VNNI goes"


def test_a_breakpoint_of_another_origin_still_ends_a_process(environment):
    program = "import os, signal; os.kill(os.getpid(), signal.SIGTRAP)"
    done = subprocess.run([sys.executable, "-c", program], env=environment, check=False)
    assert done.returncode == -signal.SIGTRAP


def test_it_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with pytest.raises(avx2.CannotHide, match="x86-64"):
        avx2.environment(tmp_path)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(shutil, "which", lambda tool: None if tool == "objdump" else tool)
    with pytest.raises(avx2.CannotHide, match="there is no objdump"):
        avx2.environment(tmp_path)
    assert list(tmp_path.iterdir()) == []
