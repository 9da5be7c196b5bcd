"""Bundles from a server into the cache: what is refused, tried again, gone on with, kept and removed."""

import fcntl
import hashlib
import json
import logging
import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest

from helpers.certificates import Authority
from helpers.file_server import (
    FileServer,
    cut,
    dripping,
    endless,
    endless_header,
    other,
    redirect,
    silent,
    status,
    wait_until,
    whole,
    without_ranges,
)
from helpers.refusals import refusal
from helpers.tiny_bundle import TINY
from translane_server.bundle.bundle import load_bundle
from translane_server.core.errors import BundleError
from translane_server.models import download
from translane_server.models.cache import ModelCache, model_cache
from translane_server.models.remote_model import RemoteModel
from translane_server.settings.model_sources import ModelUrl

MANIFEST = json.loads((TINY / "manifest.json").read_bytes())
FILES, PROVENANCE = MANIFEST["files"], MANIFEST["provenance"]
SIZE = sum(entry["size"] for entry in FILES.values())
DESCRIPTION, WEIGHTS = "zh-en/manifest.json", "zh-en/weights.bin"


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    # a power failure cannot be tested here, and waiting for the disk takes most of the time
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    monkeypatch.setattr(download, "PAUSE", 0.001)


@pytest.fixture
def server():
    with FileServer() as running:
        running.put(TINY, "zh-en")
        yield running


@pytest.fixture
def cache(tmp_path):
    return ModelCache(tmp_path / "cache", 1 << 30)


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def publish(server, place="zh-en", files=(), **changes):
    """Change the bundle at a place of the server, and return the digest of its new manifest."""
    manifest = json.loads(server.files[f"{place}/manifest.json"])
    for name, content in dict(files).items():
        server.files[f"{place}/{name}"] = content
        manifest["files"][name] = {"size": len(content), "sha256": sha256(content)}
    server.files[f"{place}/manifest.json"] = json.dumps(manifest | changes).encode()
    return digest_of(server, place)


def digest_of(server, place="zh-en"):
    return sha256(server.files[f"{place}/manifest.json"])


def model_of(server, cache, digest="", place="zh-en"):
    return RemoteModel(ModelUrl.parse(f"{server.url}/{place}" + (f"@sha256:{digest}" if digest else "")), cache)


def contents(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def bundles(cache):
    return {path.name for path in (cache.folder / "bundles").iterdir()}


def check(cache):
    """The cache has whole bundles, and nothing else."""
    for digest in bundles(cache):
        load_bundle(cache.bundle(digest))
        assert sha256((cache.bundle(digest) / "manifest.json").read_bytes()) == digest
    assert not list((cache.folder / "unfinished").iterdir())


def problem_of(model):
    return refusal(BundleError, model.refresh)


@pytest.mark.parametrize("is_pinned", [True, False])
def test_a_bundle_is_downloaded_once(server, cache, is_pinned):
    digest = digest_of(server)
    model = model_of(server, cache, digest if is_pinned else "")
    assert model.refresh() == digest
    assert contents(model.folder.resolve()) == contents(TINY)
    check(cache)
    assert sorted(server.asked) == sorted(f"zh-en/{name}" for name in ("manifest.json", *FILES))
    assert server.headers[0]["User-Agent"].startswith("translane-server/")
    server.asked.clear()
    assert model.refresh() == model_of(server, cache, digest).refresh() == digest
    assert server.asked == ([] if is_pinned else [DESCRIPTION])


def test_a_digest_is_not_left(server, cache):
    model = model_of(server, cache, digest_of(server))
    assert f"the sha256 of manifest.json there is {publish(server, version='2')}" in problem_of(model)
    assert not bundles(cache)


def test_two_downloads_at_once_are_one(server, cache):
    models = [model_of(server, cache), model_of(server, ModelCache(cache.folder, 1 << 30))]

    def late(handler, content):
        wait_until(lambda: server.times(DESCRIPTION) == 2)
        whole(handler, content)

    server.behave(WEIGHTS, late)
    with ThreadPoolExecutor() as pool:
        assert list(pool.map(RemoteModel.refresh, models)) == [digest_of(server)] * 2
    assert server.times(WEIGHTS) == 1
    check(cache)


def wrong(content):
    return bytes([content[0] ^ 1]) + content[1:]


def declare(server, sizes):
    """Let the manifest list one file under some names, each with its own size."""
    manifest = json.loads(server.files[DESCRIPTION])
    manifest["files"] |= {name: {"size": size, "sha256": "0" * 64} for name, size in sizes.items()}
    server.files[DESCRIPTION] = json.dumps(manifest).encode()


REFUSED = {
    "wrong bytes": (lambda s: s.behave(WEIGHTS, other(wrong(s.files[WEIGHTS]))), "weights.bin is not the file that"),
    "fewer": (lambda s: s.behave(WEIGHTS, other(b"x")), "weights.bin: it has 1 bytes there, and the manifest lists"),
    "more": (lambda s: s.behave(WEIGHTS, other(bytes(6000))), "weights.bin: it has 6,000 bytes there, and the"),
    "endless file": (lambda s: s.behave(WEIGHTS, endless), "weights.bin: it has more than 5,120 bytes"),
    "missing file": (lambda s: s.files.pop(WEIGHTS), "weights.bin: the answer is 404 Not Found"),
    "forbidden": (lambda s: s.behave(DESCRIPTION, status(403)), "manifest.json: the answer is 403 Forbidden"),
    "to itself": (lambda s: s.behave(WEIGHTS, redirect(f"/{WEIGHTS}")), "weights.bin: it redirects more than 5 times"),
    "to a file": (lambda s: s.behave(WEIGHTS, redirect("file:///etc/passwd")), "it redirects from http to another"),
    "to no host": (lambda s: s.behave(WEIGHTS, redirect("http://[::1")), "weights.bin: it redirects to no address"),
    "to others": (lambda s: s.behave(WEIGHTS, redirect("http://192.0.2.1/a")), "which needs a digest"),
    "no manifest": (lambda s: s.behave(DESCRIPTION, other(b"<html>")), "manifest.json is not JSON"),
    "endless manifest": (lambda s: s.behave(DESCRIPTION, endless), "manifest.json: it has more than 1,000,000 bytes"),
    "large manifest": (lambda s: s.behave(DESCRIPTION, other(bytes(1_000_001))), "1,000,001 bytes there, at most"),
    "leaves": (lambda s: publish(s, files={"../../../escaped": b"x"}), "leaves the bundle"),
    "itself": (lambda s: publish(s, files={"manifest.json": b"x"}), "'manifest.json', which is no file of its own"),
    "spelled twice": (lambda s: publish(s, files={"./x": b"x"}), "'./x', which is no file of its own"),
    "within a file": (lambda s: publish(s, files={"weights.bin/x": b"x"}), "'weights.bin/x', which is no file"),
    "nothing": (lambda s: publish(s, files={"": b"x"}), "which is no file of its own"),
    "many files": (lambda s: publish(s, files={f"{n}": b"" for n in range(1000)}), "files, at most 1,000 are accepted"),
    "within the manifest": (lambda s: publish(s, files={"manifest.json/x": b"x"}), "'manifest.json/x', which is no"),
    "huge": (lambda s: declare(s, {"weights.bin": 1 << 50}), "1,125,899,906,"),
    "beyond": (lambda s: declare(s, {"weights.bin": 1 << 60}), "files.weights.bin.size: expected int <= "),
    "4,299 digits": (lambda s: declare(s, {"weights.bin": 10**4298}), "files.weights.bin.size: "),
    "two sizes": (lambda s: declare(s, {"weights.bin": 5120, "x": 1}), "weights.bin is not the file that was"),
    "deep": (lambda s: publish(s, files={"a/" * 1500 + "x": b"x"}), "is no name of a file"),
    "changed meanwhile": (
        lambda s: s.behave(DESCRIPTION, lambda h, c: (publish(s, files={"weights.bin": b"2"}), whole(h, c))),
        "weights.bin: it has 1 bytes there, and the manifest lists 5,120",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_not_right_is_refused_at_once_and_replaces_nothing(server, cache, kind, monkeypatch, tmp_path):
    monkeypatch.setattr(download, "MOST_MANIFEST_BYTES", 1_000_000)
    model = model_of(server, cache)
    good = server.files.copy()
    publish(server, version="0", files={"weights.bin": b"other"})
    model.refresh()
    server.files = good
    before = contents(cache.folder / "bundles")
    server.asked.clear()
    REFUSED[kind][0](server)
    assert re.match(f"model (bundle {server.url}|cache ).*{re.escape(REFUSED[kind][1])}", problem_of(model))
    assert server.times(DESCRIPTION) == 1
    assert server.times(WEIGHTS) == (6 if kind == "to itself" else min(1, server.times(WEIGHTS)))
    assert contents(cache.folder / "bundles") == before
    assert model.refresh(or_keep=True) == model.folder.resolve().name
    load_bundle(model.folder)
    assert not list(tmp_path.rglob("*escaped*"))


def other_part(handler, content):
    handler.answer(206, content[5:], Content_Range=f"bytes 5-5119/{len(content)}")


TRIED_AGAIN = {
    "429": (status(429), "the answer is 429 Too Many Requests"),
    "500": (status(500), "the answer is 500 Internal Server Error"),
    "nothing": (lambda handler, content: None, "the connection fails"),
    "another protocol": (lambda handler, content: handler.wfile.write(b"SSH-2.0\r\n\r\n"), "the connection fails"),
    "cut": (cut(1000), "the connection fails"),
    "no range": (status(416), "the answer has other bytes than the request asked for"),
}


@pytest.mark.parametrize("kind", TRIED_AGAIN)
def test_what_may_pass_is_tried_five_times(server, cache, kind):
    behaviour, problem = TRIED_AGAIN[kind]
    server.behave(WEIGHTS, behaviour)
    assert re.search(rf"weights.bin: {re.escape(problem)}.*, 5 times$", problem_of(model_of(server, cache)))
    assert server.times(WEIGHTS) == 5
    server.behave(WEIGHTS, behaviour, whole)
    model_of(server, cache).refresh()
    check(cache)


@pytest.mark.parametrize(
    ("behaviour", "changes", "problem"),
    [
        (silent, {"SILENCE": 0.2}, "its server does not answer"),
        (dripping(100, 0.01), {"BEGINNING": 0.5, "RATE": 1e10}, "it comes with less than 9,765,625 KiB/s"),
        (endless_header, {"BEGINNING": 0.5}, "it comes with less than 64 KiB/s"),
    ],
)
def test_a_server_that_takes_too_long_is_left(server, cache, behaviour, changes, problem, monkeypatch):
    for name, value in changes.items():
        monkeypatch.setattr(download, name, value)
    server.behave(DESCRIPTION, behaviour)
    assert problem_of(model_of(server, cache)).endswith(f"manifest.json: {problem}, 5 times")


@pytest.mark.parametrize(
    ("behaviours", "ranges"),
    [
        ((cut(1000), whole), [None, "bytes=1000-"]),
        ((cut(1000), without_ranges), [None, "bytes=1000-"]),
        ((cut(1000), status(416), whole), [None, "bytes=1000-", None]),
        ((cut(1000), other_part, whole), [None, "bytes=1000-", None]),
        ((cut(1000), lambda handler, content: handler.answer(206, content[1000:]), whole), [None, "bytes=1000-", None]),
    ],
)
def test_it_goes_on_where_it_ended(server, cache, behaviours, ranges):
    server.behave(WEIGHTS, *behaviours)
    model_of(server, cache).refresh()
    assert asked_ranges(server) == ranges
    check(cache)


def asked_ranges(server):
    asked = zip(server.asked, server.headers, strict=True)
    return [headers.get("Range") for path, headers in asked if path == WEIGHTS]


@pytest.mark.parametrize(
    ("left", "ranges"),
    [
        (lambda content: content[:1000], ["bytes=1000-"]),
        (lambda content: content, []),
        (lambda content: bytes(1000), ["bytes=1000-", None]),
        (lambda content: wrong(content), [None]),
        (lambda content: content + b"more", [None]),
    ],
)
def test_what_a_killed_download_left_is_used_and_not_trusted(server, cache, left, ranges):
    folder = cache.folder / "unfinished" / digest_of(server)
    folder.mkdir()
    (folder / "weights.bin").write_bytes(left(server.files[WEIGHTS]))
    model_of(server, cache).refresh()
    assert asked_ranges(server) == ranges
    check(cache)


@pytest.mark.parametrize("behaviour", [silent, dripping(100, 0.01), endless_header])
def test_a_download_is_given_up(server, cache, behaviour):
    """One model downloads, and the other one waits for it."""
    server.behave(WEIGHTS, behaviour)
    models = [model_of(server, cache), model_of(server, cache)]
    with ThreadPoolExecutor() as pool:
        running = [pool.submit(model.refresh) for model in models]
        wait_until(lambda: server.times(DESCRIPTION) == 2 and server.times(WEIGHTS))
        for model in models:
            model.close()
        for each in running:
            assert "the download was given up, because the server stops" in str(each.exception(10))


def test_redirects_are_followed_and_another_host_gets_no_password(server, cache):
    with FileServer({"there": server.files[WEIGHTS]}) as second:
        server.behave(WEIGHTS, redirect("/a"))
        server.behave("a", redirect(f"{second.url}/there"))
        url = f"{server.url.replace('//', '//user:hunter2@')}/zh-en"
        RemoteModel(ModelUrl.parse(url), cache).refresh()
        assert {headers.get("Authorization") for headers in server.headers} == {"Basic dXNlcjpodW50ZXIy"}
        assert [headers.get("Authorization") for headers in second.headers] == [None]
    check(cache)


def test_certificates_and_a_redirect_to_plain_text(server, cache, tmp_path, monkeypatch):
    authority = Authority(tmp_path)
    with FileServer(server.files, authority.files("127.0.0.1")) as secure:
        monkeypatch.setenv("SSL_CERT_FILE", str(Authority(tmp_path, "other").file))
        assert "manifest.json: the certificate of its server is refused: " in problem_of(model_of(secure, cache))
        assert secure.asked == []
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
        secure.behave(WEIGHTS, redirect(f"{server.url}/{WEIGHTS}"))
        assert "it redirects from https to another scheme" in problem_of(model_of(secure, cache))
        secure.behave(WEIGHTS, cut(100), whole)
        model_of(secure, cache).refresh()
    check(cache)


def test_a_proxy_of_the_environment_is_asked_but_for_what_is_on_this_machine(server, cache, monkeypatch):
    weights = server.files[WEIGHTS]
    with FileServer({"http://192.0.2.1/a": weights}) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        server.behave(WEIGHTS, redirect("http://192.0.2.1/a"))  # the digest allows it
        model_of(server, cache, digest_of(server)).refresh()
        assert proxy.asked == ["http://192.0.2.1/a"]
    check(cache)


def test_secrets_reach_no_log_and_no_error(server, cache, caplog):
    caplog.set_level(logging.DEBUG)
    url = ModelUrl.parse(f"{server.url.replace('//', '//user:hunter2@')}/zh-en?sig=hunter3")
    model = RemoteModel(url, cache)
    server.behave(WEIGHTS, redirect(f"/{WEIGHTS}?sig=hunter4"), cut(100), whole)
    model.refresh()
    problems = []
    for behaviour in (status(500), redirect("ftp://hunter5/"), redirect("http://hunter6:99999/"), silent):
        server.behave(DESCRIPTION, behaviour)
        if behaviour is silent:
            server.server_close()
        model.refresh(or_keep=True)
        problems.append(problem_of(model))
    assert "downloaded sha256:" in caplog.text
    assert "the version of the last download goes on" in caplog.text
    assert "hunter" not in caplog.text + "".join(problems)


def test_a_size_beyond_the_limit_is_refused_before_anything_is_downloaded(server, tmp_path):
    assert re.match(
        r"model cache .*: [\d,]+ bytes are needed, and 10,000 are free on the disk",
        problem_of(model_of(server, ModelCache(tmp_path, 10_000))),
    )
    assert server.asked == [DESCRIPTION]


def test_a_full_disk_is_told(server, cache, monkeypatch):
    with monkeypatch.context() as patches:
        patches.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 1000}))
        assert "and 1,000 are free on the disk" in problem_of(model_of(server, cache))
    with monkeypatch.context() as patches:
        patches.setattr("os.fsync", Mock(side_effect=OSError(28, "No space left on device")))
        assert problem_of(model_of(server, cache)).endswith("it cannot be used: No space left on device")
    model_of(server, cache).refresh()
    check(cache)


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(BundleError, match="it cannot be used: Not a directory"):
        ModelCache(tmp_path / "file" / "cache", 1)


def publish_four(server):
    """Serve four bundles of the same size; return their digests."""
    for number in range(4):
        files = {name: bytes([number]) + server.files[f"zh-en/{name}"][1:] for name in FILES}
        server.files[f"{number}/manifest.json"] = server.files[DESCRIPTION]
        yield publish(server, str(number), files=files)


def download_and_close(server, cache, digest, place):
    model = model_of(server, cache, digest, place)
    model.refresh()
    model.close()
    return model


def test_unused_bundles_make_room(server, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    cache = ModelCache(tmp_path, 2 * SIZE + 20_000)
    digests = list(publish_four(server))
    models = [model_of(server, cache, digest, str(number)) for number, digest in enumerate(digests)]
    models[0].refresh()
    models[1].refresh()
    models[1].close()
    models[2].refresh()
    assert bundles(cache) == {digests[0], digests[2]}  # the first is older, but somebody holds it
    assert "removed bundles/" + digests[1] in caplog.text
    loaded = models[2].hold(models[2].folder)
    models[2].close()
    assert "beside the models in use" in problem_of(models[3])
    loaded.release()
    models[3].refresh()
    assert bundles(cache) == {digests[0], digests[3]}
    check(cache)


def test_the_bundle_that_was_not_used_for_longest_makes_room(server, tmp_path):
    cache = ModelCache(tmp_path, 3 * SIZE + 30_000)
    digests = list(publish_four(server))
    for number in (0, 1, 2, 0, 3):
        download_and_close(server, cache, digests[number], str(number))
    assert bundles(cache) == {digests[0], digests[2], digests[3]}


def test_manifests_count(server, tmp_path):
    cache = ModelCache(tmp_path, 2 * SIZE + 100_000)
    model = model_of(server, cache)
    for number in range(6):
        publish(server, provenance=PROVENANCE | {"training": {"notes": f"{number}" * 40_000}})
        model.refresh()
    assert len(bundles(cache)) == 2
    check(cache)


def test_what_was_exported_counts_and_makes_room_unless_somebody_uses_it(server, tmp_path):
    cache = ModelCache(tmp_path, SIZE + 30_000)
    used = [cache.exported / "of-1", cache.exported / "of-2", cache.firefox / "de-en"]
    for number, folder in enumerate(used):
        folder.mkdir(parents=True)
        (folder / "weights.bin").write_bytes(bytes(SIZE // 2))
        os.utime(folder, (number, number))
    (cache.exported / "of-1.lock").touch()
    held = [hold for folder in used[:2] if (hold := cache.keep(folder))]
    model = model_of(server, cache)
    assert "beside the models in use" in problem_of(model)
    assert [folder.exists() for folder in used] == [True, True, False]
    held[0].release()
    cache.trim()  # what is left is not too much
    assert used[0].exists()
    assert "beside the models in use" in problem_of(model)
    assert [folder.exists() for folder in used[:2]] == [False, True]
    held[1].release()
    model.refresh()
    check(cache)
    model.close()
    ModelCache(tmp_path, 1).trim()
    assert not bundles(cache)


def test_what_killed_downloads_removals_and_exports_left_is_removed_without_a_download(tmp_path, monkeypatch):
    cache = ModelCache(tmp_path, 1)
    for name in ("a-1", "a-1", "b-2"):
        (cache.exported / name).mkdir(parents=True)
        (cache.exported / name / "weights.bin").write_bytes(bytes(2))
        with monkeypatch.context() as patches:
            patches.setattr("shutil.rmtree", Mock(side_effect=OSError))
            cache.trim()
    (cache.folder / "unfinished" / "link").symlink_to("nowhere")
    for folder in (".a-1.x_1", ".b-2.x_1", ".snapshot"):
        (cache.exported / folder).mkdir()
    (cache.exported / "a-1.lock").touch()
    with (cache.exported / "b-2.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # this export runs
        cache.trim()
    check(cache)
    assert {path.name for path in cache.exported.glob("*/")} == {".b-2.x_1", ".snapshot"}
    cache.trim()
    assert {path.name for path in cache.exported.glob("*/")} == {".snapshot"}


def test_what_cannot_be_removed_counts_and_is_no_obstacle(server, tmp_path, monkeypatch):
    cache = ModelCache(tmp_path, 2 * SIZE + 20_000)
    left = cache.folder / "unfinished" / "removed-x"
    left.mkdir()
    (left / "weights.bin").write_bytes(bytes(SIZE))
    digests = list(publish_four(server))[:2]
    remove = shutil.rmtree

    def refused(path):
        if path == left:
            raise PermissionError
        remove(path)

    monkeypatch.setattr("shutil.rmtree", refused)
    for number, digest in enumerate(digests):
        download_and_close(server, cache, digest, str(number))
    assert bundles(cache) == {digests[1]}


@pytest.mark.parametrize(("value", "base"), [("/c", "/c"), ("c", "/home/x/.cache"), ("", "/home/x/.cache")])
def test_the_cache_is_in_the_users_folder_of_caches(monkeypatch, value, base):
    monkeypatch.setenv("HOME", "/home/x")
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    assert model_cache() == Path(base) / "translane/models"
    assert model_cache(Path("~/mine")) == Path("/home/x/mine")


def test_what_is_no_bundle_makes_room_too(server, tmp_path):
    cache = ModelCache(tmp_path, SIZE + 20_000)
    model = download_and_close(server, cache, next(publish_four(server)), "0")
    (model.folder / "manifest.json").unlink()
    (model.folder / "manifest.json").mkdir()
    (cache.folder / "bundles" / "stray").write_bytes(bytes(SIZE))
    second = model_of(server, cache).refresh()
    assert bundles(cache) == {second}
    check(cache)


def test_a_broken_bundle_that_others_hold_is_downloaded_again(server, tmp_path):
    cache = ModelCache(tmp_path, SIZE + 20_000)
    model, holder = (model_of(server, cache, digest_of(server)) for _ in range(2))
    model.refresh()
    holder.refresh()
    assert not model.mend()
    good = contents(model.folder)
    (model.folder / "weights.bin").write_bytes(wrong(good["weights.bin"]))
    (model.folder / "manifest.json").write_bytes(b"{}")
    server.behave(WEIGHTS, status(404))
    with pytest.raises(BundleError, match="the answer is 404"):
        model.mend()
    assert model.folder.exists()
    server.behaviours.clear()
    assert model.mend()
    assert contents(model.folder) == good
    check(cache)
    model.close()
    other_bundle = model_of(server, cache, next(publish_four(server)), "0")
    assert "beside the models in use" in problem_of(other_bundle)
    holder.close()
    other_bundle.refresh()
    assert not model.folder.exists()


@pytest.mark.parametrize("is_pinned", [True, False])
def test_a_manifest_that_has_changed_in_the_cache_is_not_served(server, cache, is_pinned):
    digest = digest_of(server)
    model = model_of(server, cache, digest if is_pinned else "")
    model.refresh()
    manifest = cache.bundle(digest) / "manifest.json"
    content = manifest.read_bytes()
    model.hold(model.folder).release()
    manifest.write_bytes(content.replace(b'"version": "1"', b'"version": "2"'))
    assert load_bundle(model.folder).manifest.version == "2"
    with pytest.raises(BundleError, match=r"manifest\.json is not the one that was downloaded$"):
        model.hold(model.folder)
    files, server.files = server.files, {}
    with pytest.raises(BundleError, match="the answer is 404"):
        model.refresh(or_keep=True)
    server.files = files
    assert model.refresh() == digest
    assert manifest.read_bytes() == content
    check(cache)
