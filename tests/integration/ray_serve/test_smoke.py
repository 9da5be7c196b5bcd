"""Ray starts with the application, answers, and ends: the one test of Ray's own that every run of the tests has."""

import psutil
import pytest

pytest.importorskip("ray.serve", reason="the extra ray is not installed")
pytest.importorskip("helpers.ray_cluster.serve")

from helpers.ray_cluster.serve import ray_serve
from helpers.reliability.server_process import BUNDLE
from translane_client import Client

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(240),
    pytest.mark.skipif(not BUNDLE.exists(), reason="the bundled model is not in this tree"),
]


def test_an_engine_answers_and_nothing_is_left_of_it(tmp_path):
    engine = ["--replicas", "1", "--threads", "1", "--metrics-port", "0"]
    with ray_serve(tmp_path, [str(BUNDLE), *engine]) as running, Client(running.address) as client:
        assert "cat" in client.translate("我有一只猫。").text
        (replica,) = running.replicas()
        processes = [replica, *replica.children(recursive=True)]
        assert len(processes) > 1
    _, alive = psutil.wait_procs(processes, timeout=20)
    assert alive == []
