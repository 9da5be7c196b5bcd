"""Several processes make the updates of one."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest
import torch
from torch import Tensor

from helpers.commands import train as run
from translane_export.core.checkpoint import load_checkpoint, load_tensors
from translane_export.model import Transformer
from translane_export.train.batches import EncodedPair
from translane_export.train.log import read_history
from translane_export.train.parallel import Parallel, part
from translane_export.train.settings import TrainSettings
from translane_export.train.update import Update, Updater

pytestmark = pytest.mark.slow

TORCHRUN = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
PAIRS = [EncodedPair([4 + i, 5, 6][: 1 + i % 3], [7, 8 + i, 9, 10][: 1 + i % 4]) for i in range(7)]


Result = TypeVar("Result")


class Threads(Parallel):
    """One of some threads that stand for processes."""

    def __init__(self, rank: int, barrier: threading.Barrier, shared: list[Tensor]) -> None:
        self.rank = self.local_rank = rank
        self.size, self._wait, self._shared = barrier.parties, barrier.wait, shared

    def _all(self, tensor: Tensor) -> list[Tensor]:
        self._shared[self.rank] = tensor.clone()
        self._wait()
        found = list(self._shared)
        self._wait()
        return found

    def sum(self, tensor: Tensor) -> None:
        tensor.copy_(torch.stack(self._all(tensor)).sum(dim=0))

    def share(self, numbers: Sequence[float]) -> list[float]:
        return self._all(torch.tensor(numbers))[0].tolist()

    def barrier(self) -> None:
        self._wait()


def together(size: int, work: Callable[[Threads], Result]) -> list[Result]:
    """What `work` returns in each of `size` processes that are threads."""
    barrier, shared = threading.Barrier(size, timeout=60), [torch.zeros(0)] * size
    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(lambda rank: work(Threads(rank, barrier, shared)), range(size)))


@pytest.fixture
def settings():
    return TrainSettings.model_validate(
        {
            **{"train": "a", "valid": "b", "output": "c", "source_language": "zh", "target_language": "en"},
            **{"preset": "tiny", "d_model": 16, "ffn_size": 16, "max_positions": 16, "dropout": 0.0},
            **{"warmup_steps": 2, "precision": "fp32"},
        }
    )


def model_of(settings: TrainSettings) -> Transformer:
    torch.manual_seed(1)
    # In float64, as Adam makes whole steps of gradients that are nothing but rounding.
    return Transformer(settings.transformer_config(source_size=20, target_size=20)).double().train()


@pytest.mark.parametrize("size", [2, 3])
def test_updates_are_those_of_one_process(settings, size):
    """In batches of many pairs, and of fewer pairs than there are processes."""
    batches = [PAIRS, PAIRS[:1], PAIRS[2:4], PAIRS[1:]]
    alone, models = model_of(settings), [model_of(settings) for _ in range(size)]
    updater = Updater(alone, settings, Parallel())
    expected = [updater.update(batch, step) for step, batch in enumerate(batches, start=1)]

    def train(process: Threads) -> list[Update]:
        own = Updater(models[process.rank], settings, process)
        return [own.update(batch, step) for step, batch in enumerate(batches, start=1)]

    for model, found in zip(models, together(size, train), strict=True):
        assert [update.target_tokens for update in found] == [update.target_tokens for update in expected]
        assert [update.loss for update in found] == pytest.approx([update.loss for update in expected], rel=1e-9)
        for ours, theirs in zip(model.parameters(), alone.parameters(), strict=True):
            assert torch.allclose(ours, theirs, atol=1e-9)


def test_parts_are_disjoint_and_all():
    parts = [part(PAIRS, process) for process in together(3, lambda process: process)]
    assert [len(own) for own in parts] == [3, 2, 2]
    assert sorted(id(pair) for own in parts for pair in own) == sorted(map(id, PAIRS))
    assert part(PAIRS, Parallel()) == PAIRS


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


@pytest.mark.slow
@pytest.mark.parametrize("norm_kind", ["layer", "batch"])  # a batch norm sees the batches of both
def test_two_processes_train_what_one_trains(run_flags, tmp_path, norm_kind):
    values = {"norm_kind": norm_kind, "dropout": 0.0, "max_steps": 24, "log_every": 4, "learning_rate": 0.003}
    assert run(run_flags("one", **values), {}) == 0
    # in two parts, so that the processes resume, too
    for more in ({"max_steps": 13}, {"resume": True}):
        process = torchrun(run_flags("two", **{**values, **more}))
        out, err = process.communicate(timeout=100)
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
    assert two.config == one.config
    assert two.metadata["steps"] == one.metadata["steps"]
    histories = [read_history(tmp_path / run / "history.jsonl") for run in ("two", "one")]
    losses = [{each["step"]: each["loss"] for each in records if each["kind"] == "step"} for records in histories]
    assert losses[0].pop(13) > 0  # where the first part ended
    losses[0].pop(16), losses[1].pop(16)  # and an average that began there
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


@pytest.mark.slow
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
