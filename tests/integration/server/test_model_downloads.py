"""Models from URLs, through the socket: a server downloads, follows, refuses, and outlives the store."""

import asyncio
import hashlib
import json
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.file_server import FileServer, other, silent, status, wait_until, whole
from helpers.http_calls import until
from helpers.real_server import Running, serving_models, small_settings
from helpers.tiny_bundle import TINY
from translane.v1 import translation_pb2 as pb
from translane_server.app.check import check
from translane_server.bundle.bundle import load_bundle
from translane_server.settings.server_settings import ServerSettings

pytestmark = pytest.mark.slow

PATIENCE = 60  # seconds, on a busy machine
WEIGHTS = "zh-en/weights.bin"
CHECK = [sys.executable, "-m", "translane", "serve", "--check"]


@pytest.fixture
def store():
    with FileServer() as server:
        server.put(TINY, "zh-en")
        yield server


def publish(store: FileServer, **changes: object) -> None:
    manifest = json.loads(store.files["zh-en/manifest.json"])
    store.files["zh-en/manifest.json"] = json.dumps(manifest | changes).encode()


def digest_of(store: FileServer) -> str:
    return hashlib.sha256(store.files["zh-en/manifest.json"]).hexdigest()


def settings_of(store: FileServer, cache: Path, digest: str = "") -> ServerSettings:
    place = f"{store.url}/zh-en" + (f"@sha256:{digest}" if digest else "")
    return small_settings(model=place, model_cache=cache)


async def translate(running: Running) -> list[str]:
    asked = pb.TranslateRequest(texts=["我有一只猫。"], options=pb.DecodingOptions(max_length=8, return_tokens=True))
    answer = await running.stub.Translate(asked, timeout=PATIENCE)
    return list(answer.translations[0].hypotheses[0].tokens)


async def version_of(running: Running) -> str:
    models = (await running.stub.ListModels(pb.ListModelsRequest())).models
    version: str = models[0].version
    return version


async def test_a_server_follows_a_url_and_outlives_it(store, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    first = digest_of(store)
    async with serving_models(small_settings(model=str(TINY))) as running:
        expected = await translate(running)
    settings = settings_of(store, tmp_path)
    async with serving_models(settings) as running:
        assert await translate(running) == expected
        assert (
            f"it has no digest, so whoever writes there decides what is served; now it is @sha256:{first}"
            in caplog.text
        )
        publish(store, version="2")
        running.server.models.request_reload()

        async def is_reloaded() -> bool:
            return await version_of(running) == "2"

        await until(is_reloaded, PATIENCE)
        assert await translate(running) == expected

        weights = store.files[WEIGHTS]
        manifest = json.loads(store.files["zh-en/manifest.json"])
        manifest["files"]["weights.bin"]["sha256"] = hashlib.sha256(b"other").hexdigest()
        store.behave(WEIGHTS, other(weights[:-1] + b"x"))
        publish(store, **(manifest | {"version": "3"}))

        def reloads() -> float | None:
            return running.value("translane_model_reloads_total", model="reference", outcome="refused")

        for refused, behaviour in enumerate((whole, status(404), status(403)), 1):
            store.behave("zh-en/manifest.json", behaviour)
            running.server.models.request_reload()
            await until(lambda: reloads() == refused, PATIENCE)  # noqa: B023  it is awaited at once
        assert (await version_of(running), await translate(running)) == ("2", expected)
        assert caplog.text.count("a new version is refused, and version 2@") == 3
        assert "weights.bin is not the file that was exported: its sha256 there is" in caplog.text
    async with serving_models(settings) as running:
        assert (await version_of(running), await translate(running)) == ("2", expected)
    assert "the answer is 403 Forbidden; the version of the last download goes on" in caplog.text


async def test_a_server_stops_while_it_downloads(store, tmp_path):
    async with serving_models(settings_of(store, tmp_path)) as running:
        before = len(store.asked)
        store.behave("zh-en/manifest.json", silent)
        running.server.models.request_reload()
        await asyncio.to_thread(wait_until, lambda: len(store.asked) > before)
        assert await translate(running)
    async with asyncio.timeout(10):  # the server would be waited for longer
        await asyncio.get_running_loop().shutdown_default_executor()


async def test_a_broken_file_of_the_cache_is_replaced(store, tmp_path):
    settings = settings_of(store, tmp_path, digest_of(store))
    list(check(settings))
    (tmp_path / "bundles" / digest_of(store) / "weights.bin").write_bytes(bytes(5120))
    async with serving_models(settings) as running:
        assert await translate(running)
    assert store.times(WEIGHTS) == 2
    load_bundle(tmp_path / "bundles" / digest_of(store))


def test_a_bundle_on_hugging_face(store, tmp_path):
    store.put(TINY, "owner/zh-en/resolve/v1/int8")
    environ = os.environ | {"HF_ENDPOINT": store.url, "HF_TOKEN": "hunter2"}
    command = [*CHECK, f"--model-cache={tmp_path}", "hf://owner/zh-en@v1/int8"]
    run = subprocess.run(command, env=environ, capture_output=True, text=True)
    assert run.stdout.splitlines()[1].startswith(f"model bundle hf://owner/zh-en@v1/int8: sha256:{digest_of(store)} is")
    assert {headers.get("Authorization") for headers in store.headers} == {"Bearer hunter2"}
    assert "hunter2" not in run.stdout + run.stderr
    load_bundle(tmp_path / "bundles" / digest_of(store))


def test_a_killed_download_goes_on(store, tmp_path):
    content = os.urandom(1_000_000)
    store.files["zh-en/large"] = content
    entry = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    publish(store, files=json.loads(store.files["zh-en/manifest.json"])["files"] | {"large": entry})

    def half(handler, content):
        handler.answer(200, content[:600_000], len(content))
        handler.server.stopping.wait(60)

    store.behave("zh-en/large", half)
    part = tmp_path / "unfinished" / digest_of(store) / "large"
    process = subprocess.Popen([*CHECK, f"--model-cache={tmp_path}", f"{store.url}/zh-en"], stdout=-1, stderr=-1)
    try:
        wait_until(lambda: part.exists() and part.stat().st_size > 500_000)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    arrived = part.stat().st_size
    assert not list((tmp_path / "bundles").iterdir())
    store.behave("zh-en/large", whole)
    store.headers.clear()
    list(check(settings_of(store, tmp_path)))
    assert [headers["Range"] for headers in store.headers if "Range" in headers] == [f"bytes={arrived}-"]
    load_bundle(tmp_path / "bundles" / digest_of(store))
    assert not list((tmp_path / "unfinished").iterdir())
