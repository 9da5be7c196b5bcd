"""Several processes make the updates of one."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from helpers.commands import train as run
from translane_export.core.checkpoint import load_checkpoint, load_tensors
from translane_export.train.log import read_history
from translane_export.train.parallel import Parallel, seed_others

pytestmark = pytest.mark.slow

TORCHRUN = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


@pytest.mark.parametrize("changes", [{"MASTER_ADDR": ""}, {"MASTER_PORT": "x"}, {"LOCAL_RANK": ""}])
def test_an_environment_that_makes_no_sense_is_one_sentence(run_flags, capfd, monkeypatch, changes):
    environ = {name: value for name, value in (TORCHRUN | changes).items() if value}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert run(run_flags(), environ) == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert "the processes do not find each other (" in line


def torchrun(flags: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"),
            *("-m", "translane", "train", *flags),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
    )


@pytest.mark.parametrize("max_tokens", [256, 16], ids=["many pairs", "fewer pairs than processes"])
def test_two_processes_train_what_one_trains(run_flags, tmp_path, max_tokens):
    values = {"max_tokens": max_tokens, "dropout": 0.0, "max_steps": 24, "log_every": 4, "learning_rate": 0.003}
    assert run(run_flags("one", **values), {}) == 0
    # in two parts, so that the processes resume, too
    for more in ({"max_steps": 13}, {"resume": True}):
        process = torchrun(run_flags("two", **{**values, **more}))
        out, err = process.communicate(timeout=250)
        assert process.returncode == 0, err
    assert re.match("ended: 24 steps are done, after 24 steps\nbest: .*\n$", out), "process 0 alone reports"
    assert err.count("in 2 processes, from step 13\n") == 1

    for name in ("resume.safetensors", "best/model.safetensors"):
        ours, theirs = (load_tensors(tmp_path / run / name).tensors for run in ("two", "one"))
        assert ours.keys() == theirs.keys()
        for key in ours:
            # A bias of keys changes nothing: its gradients are rounding, of which Adam makes whole steps.
            if not key.startswith(("random", "optimizer")) and not key.endswith("k_proj.bias"):
                assert torch.allclose(ours[key], theirs[key], atol=1e-5), key
    two, one = (load_checkpoint(tmp_path / run / "best") for run in ("two", "one"))
    assert (two.config, two.metadata["steps"]) == (one.config, one.metadata["steps"])
    histories = [read_history(tmp_path / run / "history.jsonl") for run in ("two", "one")]
    losses = [{each["step"]: each["loss"] for each in records if each["kind"] == "step"} for records in histories]
    assert losses[0].pop(13) > 0  # where the first part ended
    losses[0].pop(16), losses[1].pop(16)  # and an average that began there
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_what_ends_one_process_ends_all(run_flags, tmp_path):
    process = torchrun(run_flags(max_steps=0, patience=0, valid_every=5))
    history = tmp_path / "run" / "history.jsonl"
    deadline = time.monotonic() + 100
    while not (history.exists() and history.stat().st_size) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) == 2
    os.kill(int(children[1]), signal.SIGTERM)
    _out, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert not any(Path(f"/proc/{child}").exists() for child in children)
    assert "translane_export" not in "".join(re.findall(r'^  File ".*$', err, re.MULTILINE)), err
    assert json.loads(history.read_text().splitlines()[0])["step"] == 5


def test_each_process_has_random_numbers_of_its_own():
    drawn = []
    for rank in range(3):
        torch.manual_seed(1)
        process = Parallel()
        process.rank = rank
        seed_others(1, 5, process)
        drawn.append(torch.rand(1).item())
    torch.manual_seed(1)
    assert drawn[0] == torch.rand(1).item()
    assert len(set(drawn)) == 3
