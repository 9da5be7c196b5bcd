"""The CUDA path over stand-ins for CUDA's libraries: what ONNX Runtime's own provider does, without a GPU.

Runs where CUDA_REHEARSAL names the `cuda-rehearsal` command, set up for this project; nobody else needs it. It tells
what is launched, copied and waited for, and which lengths each attention kernel is given; it tells nothing of numbers
and time. tests/data/cuda_launches.json has how many kernels the encoder and a step may launch, by compute capability:
a launch more has to be meant, and is then written there.
"""

import json
import os
import re
import subprocess
import threading
from pathlib import Path

import grpc
import pytest

from helpers.cuda_bundles import CUDA_MODELS
from translane.v1 import translation_pb2 as pb
from translane.v1 import translation_pb2_grpc

COMMAND = os.environ.get("CUDA_REHEARSAL", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not COMMAND, reason="CUDA_REHEARSAL names no command that rehearses CUDA"),
]

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CEILINGS = json.loads((ROOT / "tests" / "data" / "cuda_launches.json").read_text(encoding="utf-8"))
CAPABILITIES = (75, 80, 86, 90)
CANNOT = 2  # the exit status of a rehearsal that cannot be held
APPENDING = (
    "kernel_mha",
    "flash_fwd_splitkv",
)  # attention that appends a position itself, and gets the lengths before it
OF_THE_OPERATOR = ("past_seq_lens", "total_seq_lens", "padded_seq_lens")
CLEARING = ("kernel_mha", "cudnnReduceTensor")  # kernels with a counter or a workspace, which a memset clears

# ONNX Runtime has no attention of bfloat16 below 8.0, and the server says so; the tool knows no bfloat16 where it tries
# the greedy graph alone.
IN_BF16 = {name for name, model in CUDA_MODELS.items() if model.precision == "bf16"}
RUNS = [(name, cc) for name in CUDA_MODELS for cc in CAPABILITIES if not (name in IN_BF16 and cc < 80)]


def arguments(action, *rest):
    return [COMMAND, action, "--project", str(ROOT), *map(str, rest)]


def rehearse(action, *rest, environment=None):
    """What the command writes; it fails the test where the rehearsal cannot be held."""
    done = subprocess.run(
        arguments(action, *rest), capture_output=True, text=True, timeout=280, check=False, env=environment
    )
    if done.returncode == CANNOT:
        pytest.fail(done.stderr)
    return done


def copies(tally, way):
    return tally["copies"].get(way, {"count": 0})["count"]


@pytest.mark.parametrize("name", CUDA_MODELS)
def test_encoding_and_steps_take_no_more_launches_copies_and_waits_than_are_known(name):
    capabilities = [cc for known, cc in RUNS if known == name]
    capture = [] if name in IN_BF16 else ["--require-capture"]
    adapter = HERE / "project_adapter.py"
    folder = CUDA_MODELS[name].bundle().folder
    done = rehearse("check", folder, "--cc", *capabilities, "--adapter", adapter, *capture, "--json")
    reports = json.loads(done.stdout)
    assert [report["capability"] for report in reports] == capabilities
    for report in reports:
        assert not [verdict for verdict in report["verdicts"] if verdict["level"] == "FAIL"]
        results = {result["part"]: result for result in report["results"]}
        graphs = [part for part in results if part.startswith("load ")]
        assert sorted(graphs) == ["load alignment", "load decoder", "load encoder", "load greedy"]
        assert not any(results[graph]["result"]["memcpy"] for graph in graphs)
        ceilings = CEILINGS["launches"][name][str(report["capability"])]
        for part, ceiling in zip(CEILINGS["parts"], ceilings, strict=True):
            tally = results[part]["tally"]
            where = f"{part} on sm_{report['capability']}"
            assert sum(tally["launches"].values()) <= ceiling, where
            assert sum(tally["syncs"].values()) == copies(tally, "H2D") == 1, where
            if part == "encode":
                assert not copies(tally, "D2H"), where
                continue
            assert copies(tally, "D2H") == (2 if part in ("step logits", "step attention") else 1), where
            assert tally["memsets"] <= sum(tally["launches"].get(kernel, 0) for kernel in CLEARING), where
        assert results["move rows"]["tally"]["launches"] == {"move_rows": 1}
        assert not results["move rows"]["tally"]["syncs"]


@pytest.mark.parametrize(("name", "capability"), RUNS, ids=str)
def test_a_captured_step_is_one_launch_one_wait_and_a_copy_each_way_over_the_rows_own_lengths(name, capability):
    bundle = CUDA_MODELS[name].bundle()
    done = rehearse(
        "run", "--cc", capability, "--", "python", HERE / "captured.py", bundle.folder,
        environment={**os.environ, "CUDA_REHEARSAL_FOLDER": str(Path(COMMAND).resolve().parent)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    reports = {report["kind"]: report for report in map(json.loads, done.stdout.splitlines())}
    needs = {"greedy", "scored", "8 candidates", "logits"}
    ahead = {"4 greedy steps", "4 greedy steps, kept"}
    others = {"greedy, between two buckets", "logits, kept", "an alignment", "moves of 48 rows"}
    assert reports.keys() == needs | ahead | others

    alignment = reports.pop("an alignment")["replayed"]
    assert not alignment["refused"]
    assert not alignment["missing"]

    moves = reports.pop("moves of 48 rows")
    assert moves["replayed"]["launches"] == {"move_rows": 1}
    assert not moves["replayed"]["copies"]
    assert not moves["replayed"]["syncs"]
    sizes = bundle.manifest.architecture
    attention_nodes = sizes.decoder_layers * (1 if sizes.cell_size else 2)
    for kind, report in reports.items():
        captured, replayed = report["captured"], report["replayed"]
        for tally in (captured, replayed):
            assert not tally["refused"], kind
            assert not tally["missing"], kind
        assert replayed["launches"] == {"cudaGraphLaunch": 4 if kind in ahead else 1}, kind
        assert sum(replayed["syncs"].values()) == copies(replayed, "H2D") == 1, kind
        answers = {"logits": 2, "logits, kept": 3, "4 greedy steps, kept": 5}
        assert copies(replayed, "D2H") == answers.get(kind, 1), kind
        assert replayed["copies"].keys() == {"H2D", "D2H"}, kind
        assert not replayed["memsets"], kind
        if kind in needs:
            # of each layer in each run: before a capture, and in it
            runs, rest = divmod(sum(call["count"] for call in captured["attention"]), attention_nodes)
            assert runs > 1, kind
            assert not rest, kind
            wrong = [call for call in captured["attention"] if not gets_own_lengths(call, report["expected"])]
            assert not wrong, kind


def gets_own_lengths(call, expected):
    """Whether an attention kernel was given the lengths of its rows: those of their sources, or of what they have."""
    right = [expected["source lengths"], expected["target lengths"]]
    if call["reader"].startswith(APPENDING):
        right.append(expected["positions"])
    given = [values for name, values in call["lengths"] if name in OF_THE_OPERATOR]
    return any(values in right for values in given or [values for _, values in call["lengths"]])


def serve(folder, device, capability):
    """The lines that a server logs from its start to its end, and what it answers between."""
    options = ("--port=0", "--metrics-port=0", f"--device={device}", "--max-batch-size=8")
    server = subprocess.Popen(
        arguments("run", "--cc", capability, "--", "translane", "serve", folder, *options),
        stderr=subprocess.PIPE,
        text=True,
    )
    overdue = threading.Timer(120, server.kill)
    overdue.start()
    lines, port = [], 0
    answers: list[pb.TranslateResponse] = []
    try:
        assert server.stderr is not None
        for line in server.stderr:
            lines.append(line.rstrip("\n"))
            if found := re.search(r"listening on 127\.0\.0\.1:(\d+)", line):
                port = int(found[1])
            if port and not answers and any("serving on " in each for each in lines):  # in either order
                with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                    stub = translation_pb2_grpc.TranslationServiceStub(channel)
                    for beams in (1, 4):
                        asked = {"beam_size": beams, "max_length": 6, "return_alignment": beams == 4}
                        request = pb.TranslateRequest(texts=["a", "bcd", "e" * 9], options=asked)
                        answers.append(stub.Translate(request, timeout=60))
                server.terminate()
    finally:
        overdue.cancel()
        server.kill()
        code = server.wait()
        if server.stderr:
            server.stderr.close()
    assert code == 0, lines
    return lines, answers


@pytest.mark.parametrize(("name", "capability", "device"), [("Marian", 86, "cuda"), ("T5", 75, "auto")], ids=str)
def test_a_server_on_cuda_starts_translates_and_drains(name, capability, device):
    lines, answers = serve(CUDA_MODELS[name].bundle().folder, device, capability)
    assert any("serving on cuda" in line for line in lines)
    assert not [line for line in lines if " WARNING " in line or " ERROR " in line]
    assert [[len(one.hypotheses) for one in answer.translations] for answer in answers] == [[1, 1, 1]] * 2


@pytest.mark.parametrize("name", sorted(IN_BF16))
def test_bf16_on_a_gpu_that_has_none_of_it_is_refused_in_a_sentence(name):
    folder = CUDA_MODELS[name].bundle().folder
    options = ("--port=0", "--metrics-port=0", "--device=cuda")
    done = rehearse("run", "--cc", 75, "--", "translane", "serve", folder, *options)
    assert done.returncode == 1
    assert re.search(r"^translane serve: device cuda: bf16 needs a GPU of compute capability 8\.0", done.stderr, re.M)
