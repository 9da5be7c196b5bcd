"""What the wheel holds, and what it asks for."""

import subprocess
import sys
import zipfile
from email import message_from_bytes
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[3]
PACKAGES = {
    "translane": "protos",
    "translane_client": "client",
    "translane_server": "server",
    "translane_export": "export",
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    if find_spec("hatchling") is None:
        pytest.skip("hatchling is not installed")
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


@pytest.fixture(scope="module")
def info(wheel):
    return next(name.split("/")[0] for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))


@pytest.fixture(scope="module")
def metadata(wheel, info):
    return message_from_bytes(wheel.read(f"{info}/METADATA"))


def requirements(metadata, extra=""):
    """The names of what `extra` asks for beyond the base install; those of the base install without it."""
    found = [Requirement(text) for text in metadata.get_all("Requires-Dist")]
    if not extra:
        return {r.name for r in found if r.marker is None}
    return {r.name for r in found if r.marker is not None and r.marker.evaluate({"extra": extra})}


def test_it_holds_the_four_packages_and_nothing_else(wheel, info):
    assert {name.split("/")[0] for name in wheel.namelist()} == {*PACKAGES, info}


@pytest.mark.parametrize("package", PACKAGES)
def test_it_holds_every_file_of_a_package(wheel, package):
    folder = ROOT / PACKAGES[package]
    files = {
        path.relative_to(folder).as_posix()
        for path in (folder / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in wheel.namelist() if name.startswith(f"{package}/")} == files
    assert f"{package}/py.typed" in files


def test_it_holds_the_protocol(wheel):
    assert "translane/v1/translation.proto" in wheel.namelist()


def test_it_holds_the_licence(wheel, info):
    assert wheel.read(f"{info}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()


def test_its_commands_exist(wheel, info):
    lines = wheel.read(f"{info}/entry_points.txt").decode().splitlines()
    commands = dict(line.split(" = ") for line in lines if " = " in line)
    assert set(commands) == {"translane", "translane-server", "translane-train", "translane-export"}
    for target in commands.values():
        module, function = target.split(":")
        assert f"def {function}(" in wheel.read(module.replace(".", "/") + ".py").decode()


def test_the_base_install_is_the_thin_client(metadata):
    assert requirements(metadata) == {"grpcio", "grpcio-status", "protobuf", "googleapis-common-protos"}


def test_the_servers_never_install_torch_or_both_runtimes(metadata):
    base = requirements(metadata, "server-base")
    assert requirements(metadata, "server") - base == {"onnxruntime"}
    of_cuda = {"nvidia-cublas", "nvidia-cuda-runtime", "nvidia-curand"}
    assert requirements(metadata, "server-cuda") - base == {"onnxruntime-gpu", *of_cuda}
    assert not base & {"torch", "onnx", "onnxruntime", "onnxruntime-gpu"}


def test_the_page_is_the_readme(metadata):
    assert (
        metadata.get_payload(decode=True).decode().strip() == (ROOT / "README.md").read_text(encoding="utf-8").strip()
    )
    assert metadata["License-Expression"] == "Apache-2.0"
