"""Bundles from a server into the cache: what is checked, what is downloaded once, and what replaces nothing."""

import hashlib
import json
import logging
import threading

import pytest

from helpers.file_server import cut, endless, other, redirect, serving_files, silent, status, wait_until, whole
from helpers.tiny_bundle import TINY
from translane_server.bundle import load_bundle
from translane_server.errors import BundleError
from translane_server.model_urls import ModelUrl
from translane_server.store import fetch
from translane_server.store.cache import ModelCache
from translane_server.store.downloads import Patience
from translane_server.store.remote_model import RemoteModel

PATIENCE = Patience(silence=10, beginning=20, pause=0.001)
MOST = 1 << 30
MANIFEST = json.loads((TINY / "manifest.json").read_bytes())
FILES, PROVENANCE = MANIFEST["files"], MANIFEST["provenance"]
WEIGHTS = "zh-en/weights.bin"


def sha256(content):
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def server():
    with serving_files() as running:
        running.put(TINY, "zh-en")
        yield running


@pytest.fixture
def cache(tmp_path):
    return ModelCache(tmp_path / "cache", MOST)


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
    url = f"{server.url}/{place}" + (f"@sha256:{digest}" if digest else "")
    return RemoteModel(ModelUrl.parse(url), cache, PATIENCE)


def names(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def contents(folder):
    return {name: (folder / name).read_bytes() for name in names(folder)}


def is_clean(cache):
    """Whether the cache has whole bundles, and nothing else."""
    bundles = list((cache.folder / "bundles").iterdir())
    for bundle in bundles:
        load_bundle(bundle)
        assert sha256((bundle / "manifest.json").read_bytes()) == bundle.name
    blobs = {path.name for path in (cache.folder / "blobs").iterdir()}
    assert all(sha256((cache.folder / "blobs" / name).read_bytes()) == name for name in blobs)
    return not list((cache.folder / "unfinished").iterdir())


@pytest.mark.parametrize("is_pinned", [True, False])
def test_a_bundle_is_downloaded_once(server, cache, is_pinned):
    digest = digest_of(server)
    model = model_of(server, cache, digest if is_pinned else "")
    assert not model.is_cached
    assert model.refresh() == digest
    assert contents(model.folder.resolve()) == {name: (TINY / name).read_bytes() for name in ("manifest.json", *FILES)}
    assert is_clean(cache)
    assert sorted(server.asked) == sorted(f"zh-en/{name}" for name in ("manifest.json", *FILES))
    server.asked.clear()
    assert model.refresh() == model_of(server, cache, digest).refresh() == digest
    assert server.asked == ([] if is_pinned else ["zh-en/manifest.json"])


def test_a_url_without_a_digest_follows_what_is_there(server, cache):
    model = model_of(server, cache)
    first = model.refresh()
    second = publish(server, version="2")
    assert first != second == model.refresh()
    assert model.folder.resolve() == cache.bundle(second)
    assert load_bundle(model.folder).manifest.version == "2"
    assert load_bundle(cache.bundle(first)).manifest.version == "1"


def test_a_digest_is_not_left(server, cache):
    digest = digest_of(server)
    model = model_of(server, cache, digest)
    publish(server, version="2")
    with pytest.raises(BundleError, match=f"the sha256 of manifest.json there is {digest_of(server)}"):
        model.refresh()
    assert is_clean(cache)
    assert not model.is_cached


def test_files_that_are_here_already_are_not_downloaded_again(server, cache):
    model = model_of(server, cache)
    model.refresh()
    server.asked.clear()
    second = publish(server, files={"README.md": b"new"}, version="2")
    assert model.refresh() == second
    assert server.asked == ["zh-en/manifest.json", "zh-en/README.md"]
    assert is_clean(cache)


def test_one_file_under_two_names_is_downloaded_once(server, cache):
    model = model_of(server, cache)
    publish(server, files={"a/same.bin": b"same", "same.bin": b"same"})
    model.refresh()
    assert server.times("zh-en/a/same.bin") + server.times("zh-en/same.bin") == 1
    assert (model.folder / "a/same.bin").read_bytes() == (model.folder / "same.bin").read_bytes() == b"same"
    assert is_clean(cache)


def wrong(content):
    return bytes([content[0] ^ 1]) + content[1:]


HOSTILE = {
    "wrong bytes": (
        lambda s: s.behave(WEIGHTS, other(wrong(s.files[WEIGHTS]))),
        "weights.bin is not the file that was",
    ),
    "another size": (lambda s: s.behave(WEIGHTS, other(b"x")), "weights.bin: it has 1 bytes there"),
    "cut": (lambda s: s.behave(WEIGHTS, cut(100), status(503)), "weights.bin: the answer is 503"),
    "endless file": (lambda s: s.behave(WEIGHTS, endless), "weights.bin: it has more than 5,120 bytes"),
    "missing file": (lambda s: s.files.pop(WEIGHTS), "weights.bin: the answer is 404 Not Found"),
    "forbidden": (lambda s: s.behave("zh-en/manifest.json", status(403)), "manifest.json: the answer is 403 Forbidden"),
    "redirects": (lambda s: s.behave(WEIGHTS, redirect(f"/{WEIGHTS}")), "weights.bin: it redirects more than 5 times"),
    "to a file": (
        lambda s: s.behave(WEIGHTS, redirect("file:///etc/passwd")),
        "weights.bin: it redirects from http to",
    ),
    "no manifest": (lambda s: s.behave("zh-en/manifest.json", other(b"<html>")), "manifest.json is not JSON"),
    "endless manifest": (lambda s: s.behave("zh-en/manifest.json", endless), "manifest.json: it has more than"),
    "large manifest": (
        lambda s: s.behave("zh-en/manifest.json", other(bytes(1_000_001))),
        "manifest.json: it has 1,000,001 bytes there, at most 1,000,000 are accepted",
    ),
    "leaves": (lambda s: publish(s, files={"../../../escaped": b"x"}), "leaves the bundle"),
    "absolute": (lambda s: publish(s, files={"/tmp/escaped": b"x"}), "leaves the bundle"),
    "itself": (lambda s: publish(s, files={"manifest.json": b"x"}), "'manifest.json', which is no file of its own"),
    "spelled twice": (lambda s: publish(s, files={"./x": b"x"}), "'./x', which is no file of its own"),
    "within a file": (lambda s: publish(s, files={"weights.bin/x": b"x"}), "'weights.bin/x', which is no file"),
    "nothing": (lambda s: publish(s, files={"": b"x"}), "which is no file of its own"),
    "many files": (lambda s: publish(s, files={f"{n}": b"" for n in range(1000)}), "files, at most 1,000 are accepted"),
    "within the manifest": (lambda s: publish(s, files={"manifest.json/x": b"x"}), "'manifest.json/x', which is no"),
    "huge": (lambda s: declare(s, {"weights.bin": 1 << 50}), "1,125,899,906,"),
    "beyond": (lambda s: declare(s, {"weights.bin": 1 << 60}), "files.weights.bin.size: Input should be less than or"),
    "400 digits": (lambda s: declare(s, {"weights.bin": 10**400}), "files.weights.bin.size: "),
    "4,299 digits": (lambda s: declare(s, {"weights.bin": 10**4298}), "files.weights.bin.size: "),
    "two sizes": (lambda s: declare(s, {"weights.bin": 1 << 40, "x": 1}), "lists 'x' and the same file with another"),
    "deep": (lambda s: publish(s, files={"a/" * 1500 + "x": b"x"}), "is no name of a file"),
    "changed meanwhile": (
        lambda s: s.behave("zh-en/manifest.json", lambda h, c: (publish(s, files={"weights.bin": b"2"}), whole(h, c))),
        "weights.bin: it has 1 bytes there, and the manifest lists 5,120",
    ),
}


def declare(server, sizes):
    """Let the manifest list one file under some names, each with its own size."""
    manifest = json.loads(server.files["zh-en/manifest.json"])
    manifest["files"] |= {name: {"size": size, "sha256": "0" * 64} for name, size in sizes.items()}
    server.files["zh-en/manifest.json"] = json.dumps(manifest).encode()


@pytest.mark.parametrize("had", [True, False], ids=["had one", "had none"])
@pytest.mark.parametrize("kind", HOSTILE)
def test_what_is_not_right_replaces_nothing(server, cache, kind, had, monkeypatch, tmp_path):
    monkeypatch.setattr(fetch, "MOST_MANIFEST_BYTES", 1_000_000)
    model = model_of(server, cache)
    if had:
        good = server.files.copy()
        publish(server, version="0", files={"weights.bin": b"other"})
        model.refresh()
        server.files = good
    before = contents(model.folder) if had else None
    HOSTILE[kind][0](server)
    with pytest.raises(BundleError, match=f"^model (bundle {server.url}|cache ).*{HOSTILE[kind][1]}"):
        model.refresh()
    assert model.is_cached == had
    if had:
        assert contents(model.folder) == before
        assert model.refresh_or_keep() == model.folder.resolve().name
    is_clean(cache)  # but for what the next download goes on with
    assert not list(tmp_path.rglob("*escaped*"))


def test_a_size_beyond_the_limit_is_refused_before_anything_is_downloaded(server, tmp_path):
    cache = ModelCache(tmp_path, 10_000)
    with pytest.raises(BundleError, match=r"^model cache .*: [\d,]+ bytes are needed, and 10,000 are free on the disk"):
        model_of(server, cache).refresh()
    assert server.asked == ["zh-en/manifest.json"]


def test_a_full_disk_is_told(server, cache, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 1000}))
    with pytest.raises(BundleError, match="and 1,000 are free on the disk"):
        model_of(server, cache).refresh()
    monkeypatch.undo()

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(BundleError, match=r"^model cache .*: it cannot be used: No space left on device$"):
        model_of(server, cache).refresh()
    monkeypatch.undo()
    assert model_of(server, cache).refresh()
    assert is_clean(cache)


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(BundleError, match="it cannot be used: Not a directory"):
        ModelCache(tmp_path / "file" / "cache", MOST)


def test_what_a_killed_download_left_is_used(server, cache):
    digest = digest_of(server)
    content = server.files[WEIGHTS]
    left = cache.unfinished(digest)
    left.mkdir()
    (left / f"part-{sha256(content)}").write_bytes(content[:1000])
    model_of(server, cache, digest).refresh()
    asked = server.headers[server.asked.index(WEIGHTS)]
    assert asked["Range"] == "bytes=1000-"
    assert is_clean(cache)


def test_what_a_killed_download_left_is_not_trusted(server, cache):
    digest = digest_of(server)
    content = server.files[WEIGHTS]
    left = cache.unfinished(digest)
    left.mkdir()
    (left / f"part-{sha256(content)}").write_bytes(bytes(1000))
    model_of(server, cache, digest).refresh()
    assert server.times(WEIGHTS) == 2
    assert is_clean(cache)


def test_what_killed_downloads_of_other_bundles_left_is_removed(server, cache):
    for name in ("0" * 64, "removed-x"):
        cache.unfinished(name).mkdir()
    (cache.unfinished("0" * 64) / "part-x").write_bytes(b"x")
    cache.unfinished("link-1-1").symlink_to("nowhere")
    model_of(server, cache).refresh()
    assert is_clean(cache)


def publish_four(server):
    """Serve four bundles that share no file; return their digests."""
    for number in range(4):
        files = {name: bytes([number]) + server.files[f"zh-en/{name}"][1:] for name in FILES}
        server.files[f"{number}/manifest.json"] = server.files["zh-en/manifest.json"]
        yield publish(server, str(number), files=files)


def test_unused_bundles_make_room(server, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    cache = ModelCache(tmp_path, 2 * sum(entry["size"] for entry in FILES.values()) + 20_000)
    digests = list(publish_four(server))
    models = [model_of(server, cache, digest, str(number)) for number, digest in enumerate(digests)]
    models[0].refresh()
    models[1].refresh()
    models[1].close()
    models[2].refresh()
    kept = {path.name for path in (cache.folder / "bundles").iterdir()}
    assert kept == {digests[0], digests[2]}  # the first is older, but somebody holds it
    assert "removed the bundle sha256:" + digests[1] in caplog.text
    assert is_clean(cache)
    loaded = models[2].hold(models[2].folder)
    models[2].close()
    with pytest.raises(BundleError, match="beside the models in use"):
        models[3].refresh()
    loaded.release()
    models[3].refresh()
    assert {path.name for path in (cache.folder / "bundles").iterdir()} == {digests[0], digests[3]}
    assert is_clean(cache)


def test_manifests_count(server, tmp_path):
    cache = ModelCache(tmp_path, sum(entry["size"] for entry in FILES.values()) + 100_000)
    model = model_of(server, cache)
    for number in range(6):
        publish(server, provenance=PROVENANCE | {"training": {"notes": f"{number}" * 40_000}})
        model.refresh()
    sizes = [(bundle / "manifest.json").stat().st_size for bundle in (cache.folder / "bundles").iterdir()]
    assert len(sizes) == 2
    assert sum(sizes) <= 100_000
    assert is_clean(cache)


def test_what_is_no_bundle_makes_room_too(server, tmp_path):
    cache = ModelCache(tmp_path, sum(entry["size"] for entry in FILES.values()) + 20_000)
    digest = next(publish_four(server))
    folder = cache.bundle(digest)
    model = model_of(server, cache, digest, "0")
    model.refresh()
    model.close()
    (folder / "manifest.json").unlink()
    (folder / "manifest.json").mkdir()
    (cache.folder / "bundles" / "stray").write_text("x")
    model_of(server, cache).refresh()
    assert not folder.exists()
    assert is_clean(cache)


def test_a_shared_file_stays_with_the_bundle_that_has_it(server, tmp_path):
    cache = ModelCache(tmp_path, sum(entry["size"] for entry in FILES.values()) + 56_600)
    first = model_of(server, cache)
    first.refresh()
    first.close()
    publish(server, files={"README.md": bytes(50_000)})
    server.asked.clear()
    model_of(server, cache).refresh()
    assert server.asked == ["zh-en/manifest.json", "zh-en/README.md"]
    assert len(list((cache.folder / "bundles").iterdir())) == 1
    assert is_clean(cache)


def test_broken_files_are_downloaded_again(server, cache):
    model = model_of(server, cache)
    model.refresh()
    assert not model.mend()
    (model.folder / "weights.bin").write_bytes(wrong(server.files[WEIGHTS]))
    server.asked.clear()
    assert model.mend()
    assert server.asked == ["zh-en/manifest.json", WEIGHTS]
    assert is_clean(cache)
    (model.folder / "manifest.json").write_bytes(b"{}")
    assert model.mend()
    assert is_clean(cache)
    server.files.clear()
    (model.folder / "weights.bin").write_bytes(b"")
    with pytest.raises(BundleError, match="the answer is 404"):
        model.mend()


def other_version(content):
    return content.replace(b'"version": "1"', b'"version": "2"')


@pytest.mark.parametrize("is_pinned", [True, False])
def test_a_manifest_that_has_changed_in_the_cache_is_not_served(server, cache, is_pinned):
    digest = digest_of(server)
    model = model_of(server, cache, digest if is_pinned else "")
    model.refresh()
    manifest = cache.bundle(digest) / "manifest.json"
    content = manifest.read_bytes()
    model.check(model.folder)
    manifest.write_bytes(other_version(content))
    assert load_bundle(model.folder).manifest.version == "2"
    with pytest.raises(BundleError, match=r"manifest\.json is not the one that was downloaded$"):
        model.check(model.folder)
    files, server.files = server.files, {}
    with pytest.raises(BundleError, match="the answer is 404"):
        model.refresh_or_keep()
    server.files = files
    server.asked.clear()
    assert model.refresh() == digest
    assert manifest.read_bytes() == content
    assert server.asked == ["zh-en/manifest.json"]
    assert is_clean(cache)


def test_a_bundle_that_others_hold_is_mended_at_its_place(server, tmp_path):
    cache = ModelCache(tmp_path, sum(entry["size"] for entry in FILES.values()) + 52_500)
    digest = digest_of(server)
    model, holder = model_of(server, cache, digest), model_of(server, cache, digest)
    model.refresh()
    holder.refresh()
    folder = cache.bundle(digest)
    good = contents(folder)
    (folder / "weights.bin").write_bytes(wrong(good["weights.bin"]))
    (folder / "manifest.json").write_bytes(b"{}")
    broken = contents(folder)
    seen = []
    server.behave(WEIGHTS, lambda handler, content: (seen.append(contents(folder)), whole(handler, content)))
    assert model.mend()
    assert seen == [broken]
    assert contents(folder) == good
    assert is_clean(cache)
    model.close()
    publish(server, files={"weights.bin": bytes(50_000)})
    with pytest.raises(BundleError, match="beside the models in use"):
        model_of(server, cache).refresh()
    holder.close()
    model_of(server, cache).refresh()
    assert not folder.exists()


def test_a_mend_that_fails_takes_nothing_away(server, cache, monkeypatch):
    model = model_of(server, cache, digest_of(server))
    model.refresh()
    server.asked.clear()

    def fail(path):
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patches:
        patches.setattr(fetch, "file_entry", fail)
        with pytest.raises(BundleError, match=r"it cannot be used: Too many open files$"):
            model.mend()
    assert server.asked == []
    assert not model.mend()
    (model.folder / "weights.bin").write_bytes(b"")
    broken = contents(model.folder)
    server.behave(WEIGHTS, status(404))
    with pytest.raises(BundleError, match="the answer is 404"):
        model.mend()
    assert contents(model.folder) == broken
    server.behaviours.clear()
    assert model.mend()
    assert is_clean(cache)


def test_a_bundle_that_is_gone_is_downloaded_again(server, cache):
    model = model_of(server, cache, digest_of(server))
    model.refresh()
    (model.folder / "manifest.json").unlink()
    model.refresh()
    assert is_clean(cache)


def test_two_downloads_at_once_are_one(server, cache):
    models = [model_of(server, cache), model_of(server, ModelCache(cache.folder, MOST))]
    begun, go = threading.Event(), threading.Event()

    def slow(handler, content):
        begun.set()
        go.wait(30)
        whole(handler, content)

    server.behave(WEIGHTS, slow)
    found = []
    threads = [threading.Thread(target=lambda model=model: found.append(model.refresh())) for model in models]
    for thread in threads:
        thread.start()
    begun.wait(30)
    wait_until(lambda: server.times("zh-en/manifest.json") == 2)
    go.set()
    for thread in threads:
        thread.join()
    assert found == [digest_of(server)] * 2
    assert server.times(WEIGHTS) == 1
    assert is_clean(cache)


def test_a_download_is_given_up(server, cache):
    server.behave(WEIGHTS, silent)
    models = [model_of(server, cache), model_of(server, cache)]
    problems = []

    def run(model):
        try:
            model.refresh()
        except BundleError as error:
            problems.append(str(error))

    threads = [threading.Thread(target=run, args=(model,)) for model in models]
    for thread in threads:
        thread.start()
    wait_until(lambda: server.times("zh-en/manifest.json") == 2 and server.times(WEIGHTS))
    for model in models[::-1]:  # either of them waits for the other
        model.close()
    for thread in threads:
        thread.join(30)
    assert len(problems) == 2
    assert all("the download was given up, because the server stops" in problem for problem in problems)


def test_secrets_reach_no_log_and_no_error(server, cache, caplog):
    caplog.set_level(logging.DEBUG)
    url = ModelUrl.parse(f"{server.url.replace('//', '//user:hunter2@')}/zh-en?sig=hunter3")
    model = RemoteModel(url, cache, PATIENCE)
    model.refresh()
    assert server.headers[0]["Authorization"].startswith("Basic ")
    server.behave("zh-en/manifest.json", status(500))
    model.refresh_or_keep()
    with pytest.raises(BundleError) as caught:
        model.refresh()
    assert "downloaded sha256:" in caplog.text
    assert "the version of the last download goes on" in caplog.text
    assert "hunter" not in caplog.text + str(caught.value)
