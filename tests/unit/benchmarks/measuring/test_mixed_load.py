"""Loads of several texts a request, and a replayed trace."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.engines.ctranslate2_server_settings import ServerSetting
from benchmarks.engines.server_process import BenchError
from benchmarks.measuring import mixed_load
from benchmarks.measuring.cell_load import CellLoad
from benchmarks.models.trace import read_trace


class Server:
    """Has a rate, and uses processor time whenever it is asked for it."""

    def __init__(self, rate: float) -> None:
        self.rate, self._used = rate, 0.0

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_exception: object) -> None:
        return

    def cpu_seconds(self) -> float:
        self._used += 0.5
        return self._used


def flag(flags, name):
    return flags[flags.index(name) + 1]


def test_the_best_batches_are_chosen_for_each_number_of_texts(monkeypatch):
    asked = []

    def measure(_load, server, *flags, duration, seed=0):
        texts = int(flag(flags, "--texts-per-request"))
        asked.append((texts, int(flag(flags, "--clients"))))
        rate = server.rate * (2 if server.rate == 50 and texts > 4 else 1)
        return {"measurements": [{"answered_per_second": rate, "errors": {"UNAVAILABLE": 1, "INTERNAL": 2}}]}

    monkeypatch.setattr(CellLoad, "measure", measure)
    monkeypatch.setattr(ServerSetting, "start", lambda setting, *_model: Server({32: 60, 64: 50}[setting.batch_size]))
    load = CellLoad(Path("texts.txt"), 1, fixed=False, warm_up=0.1)
    ours: Any = Server(120)
    model: Any = None
    found = mixed_load.by_texts(
        load, ours, ServerSetting("oneDNN", 2, 1), model, "int8", sizes=(64, 32), duration=1, rounds=2
    )
    assert [(row["texts"], row["batch_size"]) for row in found] == [(1, 32), (4, 32), (16, 64), (64, 64)]
    assert [row["translane"] for row in found] == [[{"rate": 120, "failed": 3}] * 2] * 4
    assert [row["ctranslate2"][0]["rate"] for row in found] == [60, 60, 100, 100]
    assert {texts * clients for texts, clients in asked} == {mixed_load.IN_FLIGHT}


def test_both_servers_get_the_same_trace(tmp_path, monkeypatch):
    sentences = tmp_path / "texts.txt"
    sentences.write_text("你好。\n我是学生。\n他在哪里？\n", encoding="utf-8")
    replays = []
    monkeypatch.setattr(
        CellLoad, "replay", lambda _load, server, trace, *, paragraphs: replays.append((trace, paragraphs)) or {}
    )
    servers: Any = {"translane": Server(1), "ctranslate2": Server(1)}
    found = mixed_load.replayed(
        CellLoad(sentences, 1, fixed=False, warm_up=0.1), servers, "zh", highest=20.0, seconds=10.0, rounds=1
    )
    trace = read_trace(tmp_path / "texts.trace.jsonl")
    assert [(paragraphs, path.name) for path, paragraphs in replays] == [
        (True, "texts.trace.jsonl"),
        (False, "texts.trace.jsonl"),
    ]
    assert found["requests"] == len(trace)
    assert found["sentences"] == sum(len(request.texts) for request in trace)
    assert found["ctranslate2"][0]["cpu_seconds_per_sentence"] == pytest.approx(0.5 / found["sentences"])


def test_a_server_that_cannot_be_measured_has_no_rate():
    def measure(*_flags, **_times):
        raise BenchError("no answer")

    load: Any = SimpleNamespace(measure=measure)
    server: Any = None
    assert mixed_load.throughput(load, server, 4, 1.0) == mixed_load.Throughput(0.0, 0)
