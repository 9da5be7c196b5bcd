"""`translane serve` where CUDA does not work: on the CPU, saying why, or not at all."""

import re
import subprocess
import sys

import grpc
import pytest

from helpers.bundles import SOURCES, random_bundle
from helpers.server_process import running_server
from helpers.tiny_bundle import TINY
from translane.v1 import translation_pb2 as pb
from translane.v1 import translation_pb2_grpc
from translane_server.bundle import devices

pytestmark = pytest.mark.slow

SIZES = {"d_model": 16, "ffn_size": 16, "encoder_layers": 1, "decoder_layers": 1}


@pytest.fixture(scope="module")
def half(tmp_path_factory):
    return random_bundle(tmp_path_factory.mktemp("half") / "bundle", export={"precision": "fp16"}, **SIZES)


@pytest.fixture(scope="module")
def why_not():
    """Why CUDA does not work on this machine."""
    if not (reason := devices.why_no_cuda("fp16")):
        pytest.skip("CUDA works on this machine")
    return reason


@pytest.fixture
def serve(tmp_path):
    """The lines that a server logs from its start to its end, between which it translates a sentence."""

    def run(folder, device):
        with running_server(tmp_path / "log", str(folder), f"--device={device}", "--threads=1") as server:
            with grpc.insecure_channel(server.address) as channel:
                stub = translation_pb2_grpc.TranslationServiceStub(channel)
                request = pb.TranslateRequest(texts=SOURCES[:1], options={"max_length": 4})
                assert stub.Translate(request, timeout=30).translations[0].hypotheses
            assert server.terminate() == 0, server.log
            return server.log.splitlines()

    return run


def test_auto_serves_half_precision_on_the_cpu_and_says_why_in_one_line(serve, half, why_not):
    lines = serve(half, "auto")
    assert any("serving on cpu" in line for line in lines)
    warnings = [line.partition(" WARNING ")[2] for line in lines if " WARNING " in line]
    assert warnings == [f"running on the CPU, not on CUDA: {why_not}"]


@pytest.mark.parametrize("kind", ["half", "whole"])
def test_cuda_that_does_not_work_ends_the_server_with_one_sentence(kind, half, why_not):
    folder = half if kind == "half" else TINY
    command = [sys.executable, "-m", "translane", "serve", str(folder), "--device=cuda", "--port=0", "--metrics-port=0"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert re.fullmatch(r"translane serve: device cuda: [^\n]+\n", ended.stderr)
