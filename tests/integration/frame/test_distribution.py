"""A release: what the wheel holds, what it asks for, and that it serves the model beside it."""

import os
import re
import signal
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest
from packaging.requirements import Requirement

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
PACKAGES = {
    "translane": "protos",
    "translane_client": "client",
    "translane_server": "server",
    "translane_batch": "batch",
    "translane_export": "export",
}


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """A folder with the files of a release."""
    folder = tmp_path_factory.mktemp("dist")
    command = [ROOT / "scripts" / "build-release", folder]
    done = subprocess.run(command, env={**os.environ, "PYTHON": sys.executable}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(release):
    (path,) = release.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


@pytest.fixture(scope="module")
def info(wheel):
    return next(name.split("/")[0] for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))


@pytest.fixture(scope="module")
def metadata(wheel, info):
    return message_from_bytes(wheel.read(f"{info}/METADATA"))


@pytest.fixture(scope="module")
def environment(release, tmp_path_factory):
    """The folder of the commands of a virtual environment that holds the wheel, at the versions of constraints.txt."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    (path,) = release.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "--disable-pip-version-check"]
    command = [*pip, "install", "-qq", "-c", ROOT / "constraints.txt", f"{path}[server]"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    if "No matching distribution found" in done.stderr:
        pytest.skip(f"there is no package index here: {done.stderr.strip()[-300:]}")
    assert done.returncode == 0, done.stderr
    return folder / "bin"


def requirements(metadata, extra=""):
    """The names of what `extra` asks for beyond the base install; those of the base install without it."""
    found = [Requirement(text) for text in metadata.get_all("Requires-Dist")]
    if not extra:
        return {r.name for r in found if r.marker is None}
    return {r.name for r in found if r.marker is not None and r.marker.evaluate({"extra": extra})}


def test_it_holds_the_packages_and_the_licence_and_nothing_else(wheel, info):
    files = {
        path.relative_to(ROOT / folder).as_posix()
        for package, folder in PACKAGES.items()
        for path in (ROOT / folder / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in wheel.namelist() if name.split("/")[0] != info} == files
    assert {f"{package}/py.typed" for package in PACKAGES} <= files
    assert f"{info}/licenses/LICENSE" in wheel.namelist()


def test_the_sdist_builds_the_same_wheel(release, wheel, tmp_path):
    (path,) = release.glob("translane-*.tar.gz")
    with tarfile.open(path) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path / "dist"]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (built,) = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(built) as again:
        contents, wanted = ({each.filename: each.CRC for each in found.infolist()} for found in (again, wheel))
    assert contents == wanted


def test_the_base_install_is_the_thin_client(metadata):
    assert requirements(metadata) == {"grpcio", "grpcio-status", "protobuf", "googleapis-common-protos"}


def test_the_servers_never_install_torch_or_both_runtimes(metadata):
    base = requirements(metadata, "server-base")
    assert requirements(metadata, "server") - base == {"onnxruntime"}
    of_cuda = {"nvidia-cublas", "nvidia-cuda-runtime", "nvidia-curand"}
    assert requirements(metadata, "server-cuda") - base == {"onnxruntime-gpu", *of_cuda}
    assert not base & {"torch", "onnx", "onnxruntime", "onnxruntime-gpu"}


def test_it_serves_the_model_beside_it(release, environment, tmp_path):
    """Nothing of the repository is used: neither its folder nor its environment."""
    with tarfile.open(next(release.glob("zh-en-*.tar.gz"))) as archive:
        archive.extractall(tmp_path, filter="data")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("TRANSLANE_", "PYTHON"))}
    environ["no_grpc_proxy"] = "127.0.0.1"
    command = [environment / "translane", "serve", "zh-en", "--port", "0", "--metrics-port", "0"]
    with subprocess.Popen(command, cwd=tmp_path, env=environ, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            log = ""
            while not ("serving on" in log and "listening on" in log):
                line = server.stderr.readline()
                assert line, log
                log += line
            address = re.search(r"listening on (\S+)", log)
            assert address is not None
            translate = [environment / "translane", "translate", "--server", address[1], "我有一只猫。"]
            done = subprocess.run(translate, cwd=tmp_path, env=environ, capture_output=True, encoding="utf-8")
            assert (done.stdout, done.stderr, done.returncode) == ("I have a cat.\n", "", 0)
        finally:
            server.send_signal(signal.SIGTERM)
            rest = server.stderr.read()
    assert server.returncode == 0, rest


def test_the_archive_is_the_bundled_model(release):
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    model = ROOT / "models" / "zh-en"
    with tarfile.open(release / f"zh-en-{version}.tar.gz") as archive:
        files = {file.name: content.read() for file in archive if (content := archive.extractfile(file))}
    assert files == {f"zh-en/{path.name}": path.read_bytes() for path in model.iterdir()}
