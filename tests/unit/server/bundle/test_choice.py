"""A folder is a bundle, or holds one for each precision, of which one is taken."""

import json
import logging
import shutil

import pytest

from helpers.tiny_bundle import TINY
from translane_server.bundle import devices
from translane_server.bundle import devices as bundle_choice
from translane_server.bundle.bundle import load_bundle
from translane_server.core.errors import BundleError

ALL = ("fp32", "int8", "fp16", "bf16")


@pytest.fixture
def probe(monkeypatch):
    """Sets what the probe of CUDA answers."""
    return lambda reason: monkeypatch.setattr(devices, "why_no_cuda", lambda precision: reason)


@pytest.fixture
def log(caplog):
    caplog.set_level(logging.INFO, "translane_server")
    return caplog


def write(folder, precision):
    shutil.copytree(TINY, folder)
    path = folder / "manifest.json"
    content = json.loads(path.read_text()) | {"precision": precision}
    for tensor in content["graphs"]["decoder"]["inputs"]:
        if tensor["name"].startswith("self_"):
            tensor["dtype"] = {"fp16": "float16", "bf16": "bfloat16"}.get(precision, "float32")
    if precision in ("fp16", "bf16"):
        content["graphs"]["greedy"] = content["graphs"]["decoder"]
    path.write_text(json.dumps(content))
    return folder


@pytest.fixture
def folder(tmp_path):
    """A folder of a bundle of each precision."""
    for precision in ALL:
        write(tmp_path / precision, precision)
    return tmp_path


def error(folder, requested="auto", kind=BundleError):
    with pytest.raises(kind) as raised:
        bundle_choice.choose_bundle(folder, requested)
    message = str(raised.value)
    assert "\n" not in message
    return message


def test_a_folder_with_a_manifest_is_a_bundle_whatever_else_it_holds(tmp_path, probe, log):
    probe("")
    write(tmp_path / "bundle", "fp32")
    write(tmp_path / "bundle" / "fp16", "fp16")
    bundle, device = bundle_choice.choose_bundle(tmp_path / "bundle", "auto")
    assert (bundle.folder, bundle.manifest.precision, device) == (tmp_path / "bundle", "fp32", "cpu")
    assert not log.messages


@pytest.mark.parametrize(
    ("requested", "answer", "precision", "device"),
    [
        ("auto", "", "fp16", "cuda"),
        ("auto", "no GPU", "int8", "cpu"),
        ("cuda", "", "fp16", "cuda"),
        ("cpu", "", "int8", "cpu"),
    ],
)
def test_the_bundle_of_the_device_is_taken_and_told_of(folder, probe, log, requested, answer, precision, device):
    probe(answer)
    bundle, chosen = bundle_choice.choose_bundle(folder, requested)
    assert (bundle.folder, bundle.manifest.precision, chosen) == (folder / precision, precision, device)
    assert bundle.manifest == load_bundle(folder / precision).manifest
    warned = ["running on the CPU, not on CUDA: no GPU"] if answer else []
    assert log.messages == [*warned, f"model bundle {folder}: taking {precision} of fp16, bf16, int8, fp32"]


def test_a_bundle_that_is_not_taken_needs_no_weights(folder, probe):
    probe("no GPU")
    (folder / "fp16" / "weights.bin").unlink()
    assert bundle_choice.choose_bundle(folder, "auto")[0].folder == folder / "int8"
    probe("")
    assert error(folder) == f"model bundle {folder / 'fp16'}: weights.bin is missing"


def test_a_folder_that_says_another_precision_than_its_bundle_is_refused(folder, probe):
    probe("")
    write(folder / "other", "int8")
    shutil.rmtree(folder / "fp32")
    (folder / "other").rename(folder / "fp32")
    assert error(folder) == f"model bundle {folder / 'fp32'}: its precision is int8, unlike its folder's name"


def test_a_folder_of_a_precision_that_is_no_bundle_is_refused(tmp_path, probe):
    probe("")
    (tmp_path / "int8").mkdir()
    assert error(tmp_path).startswith(f"model bundle {tmp_path / 'int8'}: it has no manifest.json")


def test_a_folder_of_neither_and_none_at_all_are_refused_as_before(tmp_path, probe):
    probe("")
    assert error(tmp_path).startswith(f"model bundle {tmp_path}: it has no manifest.json")
    assert error(tmp_path / "missing") == f"model bundle {tmp_path / 'missing'}: there is no such folder"


@pytest.mark.parametrize("damage", ["file", "dangling link"])
def test_what_should_be_the_folder_of_a_precision_and_is_none_is_refused(folder, probe, damage):
    probe("")
    shutil.rmtree(folder / "fp16")
    if damage == "file":
        (folder / "fp16").touch()
    else:
        (folder / "fp16").symlink_to(folder / "nowhere")
    assert error(folder) == f"model bundle {folder / 'fp16'}: it should be a folder with a bundle of that precision"
