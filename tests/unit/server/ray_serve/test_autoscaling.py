"""How many Serve replicas a load needs."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from fakes.models import FakeDecoder
from translane_server.observation.metrics import Metrics
from translane_server.ray_serve.autoscaling import LOAD, by_rows, load_of


class Config:
    def get_target_ongoing_requests(self):
        return 0.5


@dataclass
class Context:
    aggregated_metrics: Any
    target_num_replicas: int = 3
    config: Config = field(default_factory=Config)


@pytest.mark.parametrize(
    ("loads", "replicas"), [({"a": 0.0}, 0.0), ({"a": 0.5}, 1.0), ({"a": 0.75, "b": 0.25}, 2.0), ({"a": 1.25}, 2.5)]
)
def test_loads_decide(loads, replicas):
    assert by_rows(Context({LOAD: loads})) == (replicas, {})


@pytest.mark.parametrize("metrics", [None, {}, {LOAD: {}}])
def test_without_figures_nothing_changes(metrics):
    assert by_rows(Context(metrics)) == (3, {})


@pytest.mark.parametrize(
    ("models", "load"),
    [
        ({}, 0.0),
        ({"a": {}}, 0.0),
        ({"a": {"active_rows": 48}}, 0.75),
        ({"a": {"active_rows": 64, "waiting": 96}}, 2.5),
        ({"a": {"active_rows": 16}, "b": {"active_rows": 8, "rows": 8}}, 1.0),
        ({"a": {"active_rows": 16}, "not loaded": None}, 0.25),
        ({"a": {"active_rows": 16}, "without replicas": {"rows": 0}}, 0.25),
        ({"not loaded": None}, 0.0),
    ],
)
def test_the_load_of_an_engine_is_that_of_its_busiest_model(models, load):
    metrics = Metrics()
    for name, decoder in models.items():
        series = metrics.of_model(name)
        if decoder is not None:
            series.watch(FakeDecoder(**{"rows": 64, **decoder}), [])
    assert load_of(metrics) == load
