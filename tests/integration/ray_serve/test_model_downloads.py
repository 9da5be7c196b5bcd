"""Engines of Ray Serve whose model is at a URL."""

import hashlib

import pytest

pytest.importorskip("ray.serve", reason="Ray is not installed")
pytest.importorskip("yaml", reason="the extra ray is not installed")

from helpers.file_server import serving_files
from helpers.reliability.server_process import BUNDLE
from translane import Client

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("ray"),
    pytest.mark.timeout(240),
    pytest.mark.skipif(not BUNDLE.exists(), reason="the bundled model is not in this tree"),
]


def test_engines_of_a_machine_download_a_model_once(ray_cluster, tmp_path):
    digest = hashlib.sha256((BUNDLE / "manifest.json").read_bytes()).hexdigest()
    with serving_files() as store:
        store.put(BUNDLE, "models/8")
        model = [f"far={store.url}/models/8@sha256:{digest}", "--model-cache", str(tmp_path / "cache")]
        engines = ["--serve-replicas", "2", "--replicas", "1", "--threads", "1", "--metrics-port", "0"]
        ray_cluster.deploy([*model, *engines])
        ray_cluster.settled(2)
        with Client(ray_cluster.address) as client:
            assert [each.name for each in client.models()] == ["far"]
            texts = {client.translate("我有一只猫").text for _ in range(8)}
        assert len(texts) == 1
        assert all(store.times(path) == 1 for path in store.files if not path.endswith("manifest.json"))
