"""How many Serve replicas a load needs."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from translane_server.ray_serve.autoscaling import ROWS_WANTED, by_rows


class Config:
    def get_target_ongoing_requests(self):
        return 40.0


@dataclass
class Context:
    aggregated_metrics: Any
    target_num_replicas: int = 3
    config: Config = field(default_factory=Config)


@pytest.mark.parametrize(
    ("wanted", "replicas"), [({"a": 0.0}, 0.0), ({"a": 40.0}, 1.0), ({"a": 64.0, "b": 16.0}, 2.0), ({"a": 100.0}, 2.5)]
)
def test_rows_decide(wanted, replicas):
    assert by_rows(Context({ROWS_WANTED: wanted})) == (replicas, {})


@pytest.mark.parametrize("metrics", [None, {}, {ROWS_WANTED: {}}])
def test_without_figures_nothing_changes(metrics):
    assert by_rows(Context(metrics)) == (3, {})
