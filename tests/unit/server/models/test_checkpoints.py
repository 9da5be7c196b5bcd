"""Checkpoints of one start, exported by a program that stands for the exporter."""

import hashlib
import shutil
import sys
from importlib.util import find_spec

import pytest

from helpers.real_server import small_settings
from helpers.tiny_bundle import TINY
from translane_server.core.errors import BundleError
from translane_server.models.checkpoints import with_bundles

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="without PyTorch nothing is exported")

DIGEST = hashlib.sha256((TINY / "manifest.json").read_bytes()).hexdigest()


def test_an_export_removes_no_bundle_that_its_start_is_about_to_use(tmp_path, monkeypatch):
    monkeypatch.setenv("TRANSLANE_EXPORT_PRECISION", "-fp32")  # is not meant for the exports of a start
    exporter = tmp_path / "exporter"
    exporter.write_text(f'#!/bin/sh\necho "$4$TRANSLANE_EXPORT_PRECISION" >> {tmp_path}/exports\ncp -r {TINY} "$6"\n')
    exporter.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(exporter))
    checkpoints = [tmp_path / name for name in ("a", "b", "c")]
    for each in checkpoints:
        each.mkdir()
        (each / "model.pt").touch()

    def start(*models, **changes):
        return with_bundles(small_settings(model=[str(each) for each in models], **changes)).model

    before, after = tmp_path / "before", tmp_path / "after"
    start(*checkpoints[1:], model_cache=before)
    shutil.copytree(TINY, before / "bundles" / DIGEST)
    (before / "holds" / DIGEST).touch()
    shutil.copytree(before, after)  # where nobody holds them, as after the end of the first server
    url = f"http://127.0.0.1:9/there@sha256:{DIGEST}"
    (tmp_path / "exports").unlink()
    first, _, second = start(checkpoints[0], url, checkpoints[1], model_cache=after, model_cache_bytes=1)
    assert (tmp_path / "exports").read_text().split() == [str(checkpoints[0])]
    assert {path.name for path in (after / "bundles").iterdir()} == {DIGEST}
    assert set((after / "exported").glob("*/")) == {first.folder, second.folder}


def test_a_cache_that_takes_no_export_is_told(tmp_path):
    (tmp_path / "model.pt").touch()
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "exported").touch()
    with pytest.raises(BundleError, match=r"model cache .*cache: it cannot be used: File exists"):
        with_bundles(small_settings(model=[str(tmp_path)], model_cache=tmp_path / "cache"))
