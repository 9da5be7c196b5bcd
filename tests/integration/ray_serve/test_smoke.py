"""An engine of Ray Serve starts, answers, and ends."""

import psutil
import pytest

pytest.importorskip("ray.serve", reason="the extra ray is not installed")

from helpers.reliability.server_process import BUNDLE
from translane_client import Client

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("ray"),
    pytest.mark.timeout(240),
    pytest.mark.skipif(not BUNDLE.exists(), reason="the bundled model is not in this tree"),
]


def test_an_engine_answers_and_nothing_is_left_of_it(ray_cluster):
    engine = [str(BUNDLE), "--replicas", "1", "--threads", "1", "--metrics-port", "0"]
    ray_cluster.deploy(engine)
    (replica,) = ray_cluster.settled(1)
    processes = [replica, *replica.children(recursive=True)]
    assert len(processes) > 1
    with Client(ray_cluster.address) as client:
        assert "cat" in client.translate("我有一只猫。").text
        ray_cluster.deploy([*engine, "--max-batch-size", "8"])
        assert "cat" in client.translate("我有一只猫。").text
    _, alive = psutil.wait_procs(processes, timeout=20)
    assert alive == []
