"""How many Serve replicas a load needs."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from translane_server.observation.load import ModelLoad, ServerLoad
from translane_server.ray_serve.autoscaling import LOAD, by_rows, load_of

IDLE = ModelLoad(0, 64, 0, 1024, 0, 0, 0.0, 0, 0, 0)


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
        ({"a": IDLE}, 0.0),
        ({"a": replace(IDLE, rows_busy=48)}, 0.75),
        ({"a": replace(IDLE, rows_busy=64, sentences_waiting=96)}, 2.5),
        ({"a": replace(IDLE, rows_busy=16), "b": replace(IDLE, rows_busy=8, rows_limit=8)}, 1.0),
        ({"a": replace(IDLE, rows_busy=16), "not loaded": replace(IDLE, rows_limit=0)}, 0.25),
        ({"not loaded": replace(IDLE, rows_limit=0)}, 0.0),
    ],
)
def test_the_load_of_an_engine_is_that_of_its_busiest_model(models, load):
    assert load_of(ServerLoad(0, 0, 0, models)) == load
