"""What workers on a cluster of Ray get; without a cluster."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from unit.batch.fake_workers import settings_of

from helpers.tiny_bundle import TINY
from translane_batch.settings import BatchError

pytest.importorskip("ray")
ray_workers = pytest.importorskip("translane_batch.ray_workers")


@pytest.mark.parametrize(
    ("changes", "machines", "expected"),
    [
        ({}, [2], (2, 1)),
        ({}, [8, 4, 0, 10], (4, 5)),
        ({"cpus_per_worker": 3}, [8, 4], (3, 3)),
        ({"workers": 7}, [8, 4], (4, 7)),
    ],
)
def test_cpus_are_divided_among_workers(changes, machines, expected):
    assert ray_workers.division(settings_of(ray="auto", **changes), machines) == expected


def test_more_cpus_than_a_machine_has_are_refused():
    settings = settings_of(ray="auto", cpus_per_worker=9)
    with pytest.raises(BatchError, match="no machine of the cluster has 9 CPUs"):
        ray_workers.division(settings, [8])
    with pytest.raises(BatchError, match="has no CPUs"):
        ray_workers.division(settings, [0])


async def test_a_worker_with_another_model_says_so_in_a_sentence(monkeypatch):
    monkeypatch.setattr("ray.util.get_node_ip_address", lambda: "far")
    worker = ray_workers.RayWorker(settings_of(model=str(TINY), ray="auto"), "another digest", 1)
    for _ in range(2):
        answers, problem = await worker.translate([(1, "a")])
        assert not answers
        assert str(problem) == f"machine far: {TINY}: another model is there"


class Cluster:
    """Workers that answer in the order of their calls, but for those that are lost and have no room to come back."""

    def __init__(self, *lost):
        self.calls = []
        self.lost = lost
        self.workers = [SimpleNamespace(translate=SimpleNamespace(remote=partial(self.call, each))) for each in "ab"]

    def call(self, worker, texts):
        self.calls.append((worker, len(self.calls), tuple(texts)))
        return self.calls[-1]

    def wait(self, running, timeout):
        assert timeout
        return [each for each in running if not (each[2] and each[0] in self.lost)][:1], []

    def get(self, call):
        return [(number, text.upper()) for number, text in call[2]], None


@pytest.mark.parametrize("lost", [(), ("a",)])
def test_idle_workers_get_the_texts_of_a_machine_that_is_lost(monkeypatch, lost):
    cluster = Cluster(*lost)
    saved: list[tuple[int, str]] = []
    said: list[str] = []
    counts: list[int] = []
    monkeypatch.setattr(ray_workers, "ray", cluster)
    chunks = [[(2 * number, "x"), (2 * number + 1, "y")] for number in range(6)]
    sources = SimpleNamespace(save=saved.extend)
    ray_workers._translate(cluster.workers, iter(chunks), sources, counts.append, said.append)
    assert sorted(saved) == [(number, "XY"[number % 2]) for number in range(12)]
    assert (sum(counts), bool(said)) == (12, bool(lost))


def test_paths_hold_for_workers_elsewhere(tmp_path, monkeypatch):
    def sent(model: str, cache: str | None = None) -> tuple[str, Path | None]:
        settings = settings_of(model=model, ray="auto", model_cache=Path(cache) if cache else None)
        changed = ray_workers.for_other_processes(settings)
        return changed.model, changed.model_cache

    monkeypatch.chdir(tmp_path)
    assert sent("m", "cache") == (str(tmp_path / "m"), tmp_path / "cache")
    url = "s3://models/zh-en@sha256:" + "0" * 64
    assert sent(url, "~/cache") == (url, Path("~/cache"))
    assert sent(url) == (url, None)
