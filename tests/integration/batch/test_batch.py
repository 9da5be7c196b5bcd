"""Whole runs of `translane batch` with the bundled model: kills, Ctrl-C, servers elsewhere, and a cluster of Ray."""

import asyncio
import contextlib
import hashlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest

from helpers.commands import batch
from helpers.demo import DEMO
from helpers.file_server import FileServer, wait_until
from helpers.real_server import serving_bundle
from helpers.reliability.form import form
from helpers.server_process import assert_gone, running_server
from translane_client.aio import AsyncClient
from translane_server.bundle.bundle import load_bundle

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not DEMO.exists(), reason="the bundled model is not in this tree"),
]

WHO = ["我", "他", "她", "汤姆", "玛丽", "我们", "老师", "我的朋友", "他的父亲", "那个人"]
DOES = ["喜欢", "有", "想要", "买了", "看见了", "忘记了", "需要", "在找"]
WHAT = ["一只猫", "一本书", "一辆车", "三个苹果", "一把椅子", "一杯水", "钥匙", "那封信", "新的工作", "很多钱"]
SENTENCES = [f"{who}{does}{what}。" for who in WHO for does in DOES for what in WHAT]


def corpus_of(folder: Path, records: int, different: int, seed: int = 1) -> Path:
    """A folder of two files: lines, of which some are blank and one is too long, and JSON lines."""
    draw = random.Random(seed)
    sources = draw.sample(SENTENCES, different)
    lines = [draw.choice([*sources, ""]) for _ in range(records)]
    lines[records // 3] = "长" * 40_000
    folder.mkdir()
    half = records // 2
    (folder / "a.txt").write_text("".join(f"{line}\n" for line in lines[:half]), encoding="utf-8")
    objects = [json.dumps({"id": n, "text": line}, ensure_ascii=False) for n, line in enumerate(lines[half:])]
    (folder / "b.jsonl").write_text("\n".join(objects), encoding="utf-8")
    return folder


def argv_of(corpus: Path, output: Path, *more: str, here: bool = True) -> list[str]:
    """Arguments of a run, whose workers are processes `here` unless `more` names others."""
    workers = ["--model", str(DEMO), "--threads=1", "--replicas=1"] if here else []
    return [str(corpus), "-o", str(output), "--task-size=32", "--no-split-sentences", *workers, *more]


PATIENT_WITH_RAY = f"""
import sys
sys.path.append({str(Path(__file__).parents[2])!r})
from helpers.ray_cluster.patience import be_patient
from translane.__main__ import main
be_patient()
sys.exit(main())
"""

WITHOUT_THE_SERVER = """
import sys
for package in ("numpy", "sentencepiece", "re2", "onnxruntime", "tokenizers", "starlette", "huggingface_hub"):
    sys.modules[package] = None
from translane.__main__ import main
sys.exit(main())
"""


def outputs_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def answers_in(output: Path) -> int:
    """How many texts have an answer that a kill does not take."""
    work = output / ".translane-batch"
    if not (work / "run.sqlite").exists():
        return 0
    try:
        with contextlib.closing(sqlite3.connect((work / "run.sqlite").as_uri() + "?mode=ro", uri=True)) as found:
            return int(found.execute("select count(answer) from source").fetchone()[0])
    except sqlite3.Error:  # the run is done, and the texts are gone
        return 0


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str], seconds: float = 120) -> None:
    wait_until(lambda: process.poll() is not None or condition(), seconds)
    assert process.poll() is None, process.communicate()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return corpus_of(tmp_path_factory.mktemp("corpus") / "in", records=3000, different=600)


@pytest.fixture(scope="module")
def undisturbed(corpus, tmp_path_factory):
    """The outputs of a run that nobody disturbs."""
    output = tmp_path_factory.mktemp("undisturbed") / "out"
    assert batch(argv_of(corpus, output), {}) == 0
    return outputs_of(output)


@pytest.fixture
def started():
    """Starts runs in processes of their own."""
    processes: list[subprocess.Popen[str]] = []

    def start(argv: list[str], program: str = "from translane.__main__ import main; exit(main())"):
        command = [sys.executable, "-c", program, "batch", *argv]
        streams: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        processes.append(subprocess.Popen(command, start_new_session=True, **streams))
        return processes[-1]

    yield start
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


async def test_the_outputs_are_the_translations_of_a_server(corpus, undisturbed, tmp_path):
    lines = (corpus / "a.txt").read_text(encoding="utf-8").split("\n")[:-1]
    sources = sorted({line for line in lines if line and len(line) < 100})
    with running_server(tmp_path / "log", "--replicas=1", "--threads=1") as server:
        async with AsyncClient(server.address) as client:
            found = await client.translate(sources, split_sentences=False)
    expected = {source: translation.text for source, translation in zip(sources, found, strict=True)}
    written = undisturbed["a.txt"].decode().split("\n")[:-1]
    assert written == [expected.get(line, "") for line in lines]
    objects = [json.loads(line) for line in undisturbed["b.jsonl"].decode().splitlines()]
    assert [each["id"] for each in objects] == list(range(1500))
    assert all(each["translation"] == expected.get(each["text"], "") for each in objects if each["text"] in expected)
    (listed,) = undisturbed["a.txt.left-out.jsonl"].decode().splitlines()
    assert json.loads(listed)["record"] == 1001
    assert json.loads(listed)["reason"] == "refused"
    assert "b.jsonl.left-out.jsonl" not in undisturbed


def test_kills_at_any_moment_change_nothing(corpus, undisturbed, tmp_path, started):
    """Some at any time of a run, some when so many texts have an answer. On a busy machine, fewer."""
    draw = random.Random(3)
    kills = runs = kept = 0
    longest = 2.0  # seconds of a run, as far as is known
    end = time.monotonic() + 180
    while kills < form(8, 20) and (kills < 5 or time.monotonic() < end):
        output = tmp_path / f"out{runs}"
        begun, at, wanted = time.monotonic(), draw.random() * longest, draw.choice([0, 0, 100, 300, 500])
        process = started(argv_of(corpus, output))
        while process.poll() is None and (time.monotonic() - begun < at or answers_in(output) < wanted):
            time.sleep(0.01)
        family: list[psutil.Process] = []
        with contextlib.suppress(psutil.NoSuchProcess):  # it may have ended
            family = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        _, err = process.communicate()
        assert_gone(*family)
        if process.returncode == -signal.SIGKILL:
            kills += 1
            longest = max(longest, time.monotonic() - begun)
            assert answers_in(output) >= kept or (output / "a.txt").exists()
            kept = answers_in(output)
        else:
            assert process.returncode == 0, err
            assert outputs_of(output) == undisturbed
            runs, kept = runs + 1, 0
    assert batch(argv_of(corpus, tmp_path / f"out{runs}"), {}) == 0
    assert outputs_of(tmp_path / f"out{runs}") == undisturbed


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_says_how_to_go_on(corpus, undisturbed, tmp_path, started, monkeypatch, number):
    output, temporary = tmp_path / "out", tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    process = started(argv_of(corpus, output))
    wait_for(lambda: answers_in(output) >= 100, process)
    children = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.endswith("translane batch: interrupted; the same command goes on\n")
    assert "Traceback" not in err
    assert_gone(*children)
    assert not list(temporary.glob("translane*"))
    assert batch(argv_of(corpus, output), {}) == 0
    assert outputs_of(output) == undisturbed


async def test_servers_elsewhere_translate_where_no_package_of_the_server_is(corpus, undisturbed, tmp_path):
    output = tmp_path / "out"
    async with serving_bundle(load_bundle(DEMO), max_batch_size=64) as running:
        argv = argv_of(corpus, output, f"--server=127.0.0.1:{running.server.port}", here=False)
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", WITHOUT_THE_SERVER, "batch", *argv)
        assert await process.wait() == 0
    assert outputs_of(output) == undisturbed


@pytest.fixture(scope="module")
def store():
    with FileServer() as store:
        store.put(DEMO, "zh-en")
        yield store


@pytest.fixture(scope="module")
def downloaded(corpus, store, tmp_path_factory):
    """The cache of a run that downloaded its model, and its outputs."""
    folder = tmp_path_factory.mktemp("downloaded")
    cached = (f"--model={store.url}/zh-en", f"--model-cache={folder / 'cache'}")
    assert batch(argv_of(corpus, folder / "out", *cached), {}) == 0
    return folder / "cache", outputs_of(folder / "out")


def test_a_model_at_a_url_is_downloaded_once(store, downloaded, undisturbed):
    assert downloaded[1] == undisturbed
    assert [store.times(f"zh-en/{name}") for name in ("manifest.json", "weights.bin")] == [1, 1]


def test_a_wrong_option_is_found_before_anything_is_read(corpus, tmp_path, capsys):
    output = tmp_path / "out"
    assert batch(argv_of(corpus, output, "--beam-size=99"), {}) == 2
    assert "--beam-size: " in capsys.readouterr().err
    assert batch(argv_of(corpus, output, "--target-language=fr"), {}) == 2
    assert "--target-language: " in capsys.readouterr().err
    assert not (output / ".translane-batch" / "run.sqlite").exists()


@pytest.mark.timeout(580)
@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")
def test_workers_of_ray_are_lost_and_nothing_else_is(corpus, undisturbed, store, downloaded, tmp_path, started):
    """Their model is in the cache of the machine, and nothing is downloaded."""
    output = tmp_path / "out"
    digest = hashlib.sha256((DEMO / "manifest.json").read_bytes()).hexdigest()
    cached = (f"--model={store.url}/zh-en@sha256:{digest}", f"--model-cache={downloaded[0]}")
    store.asked.clear()
    argv = argv_of(corpus, output, *cached, "--ray=local", "--cpus-per-worker=1", "--task-size=2")
    process = started(argv, PATIENT_WITH_RAY)
    family: list[psutil.Process] = []

    def actors() -> list[psutil.Process]:
        family[:] = psutil.Process(process.pid).children(recursive=True)
        return [each for each in family if _title(each).startswith("ray::RayWorker")]

    wait_for(lambda: len(actors()) == 2, process, 300)  # Ray takes minutes to start on a busy machine
    one, _ = actors()  # found early: once they translate, it is a matter of seconds
    wait_for(lambda: answers_in(output) >= 2, process)
    one.kill()
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    assert "3,000 records in 2 files" in out
    assert outputs_of(output) == undisturbed
    assert store.asked == []
    assert_gone(*family)


def _title(process: Any) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
