"""`translane-plan measure` of the bundled model, with a real server, and a plan of what it finds."""

import contextlib
import json
import signal
import subprocess
import sys
import time

import psutil
import pytest

from helpers.demo import DEMO
from translane_plan.__main__ import main
from translane_plan.profile import read_profile

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not DEMO.exists(), reason="the bundled model is not in this tree"),
]


def test_a_profile_is_measured_and_planned_with(tmp_path, capsys):
    path = tmp_path / "profile.json"
    assert main(["measure", str(DEMO), "-o", str(path), "--seconds", "5"]) == 0
    told = capsys.readouterr().err
    assert "64 callers get" in told
    profile = read_profile(path)
    assert profile.model == "zh-en"
    assert profile.threads == 1
    steps = profile.replica.steps
    assert steps.counts == (1, 2, 4, 8, 16, 32, 64)
    assert 0 < steps.at(1) < steps.at(64) < 64 * steps.at(1)
    assert 0 < profile.replica.encodes.at(12) < profile.replica.encodes.at(768)
    assert profile.front_end.request > 0
    assert profile.memory.row == 2 * 3 * 256 * (256 * 4 + 256)
    assert 1e7 < profile.memory.front_end < 1e10
    assert profile.memory.weights > 5e6
    assert profile.traffic.received > 50
    assert len(profile.lengths) > 5
    assert main(["size", str(path), "--rate", "100", "--p95", "1s", "--cores", "4", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["is_kept"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)])
def test_the_server_ends_with_the_command(tmp_path, number, code):
    path = tmp_path / "profile.json"
    command = [sys.executable, "-m", "translane_plan", "measure", str(DEMO), "-o", str(path), "--seconds", "20"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as measuring:
        servers: list[psutil.Process] = []
        try:
            assert measuring.stderr
            assert any("server: calls alone" in line for line in measuring.stderr)
            end = time.monotonic() + 30
            while not any(each.children() for each in servers):  # it has replicas
                servers = [each for each in psutil.Process(measuring.pid).children() if listens(each)]
                assert time.monotonic() < end
                time.sleep(0.05)
            processes = [*servers, *(child for each in servers for child in each.children(recursive=True))]
            measuring.send_signal(number)
            assert measuring.wait(60) == code
            _, alive = psutil.wait_procs(processes, timeout=30)
            assert alive == []
        finally:
            measuring.kill()
            for each in servers:
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()
    assert not path.exists()


def listens(process):
    return "--port" in process.cmdline()


def test_a_model_that_does_not_load_is_told_in_a_sentence(tmp_path, capsys):
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    (bundle / "manifest.json").write_text("{}")
    assert main(["measure", str(bundle), "-o", str(tmp_path / "x.json")]) == 1
    told = capsys.readouterr().err
    assert told.startswith("translane-plan measure: model bundle")
    assert told.count("\n") == 1
