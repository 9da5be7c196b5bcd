"""The committed stubs are what protoc makes of the .proto file."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[3]
STUBS = ROOT / "protos" / "translane" / "v1"
OPENAPI = Path("server/translane_server/http/openapi.json")


@pytest.fixture(scope="module")
def generator():
    """What runs `scripts/generate-stubs` of a copy of the repository, or of the repository itself."""
    made = subprocess.run([ROOT / "scripts" / "generate-stubs", "--setup"], capture_output=True, text=True, timeout=240)
    if made.returncode != 0:
        pytest.skip(f"the generator cannot be installed here: {made.stderr.strip()[-300:]}")
    return lambda root, *arguments: subprocess.run(
        [root / "scripts" / "generate-stubs", *arguments], capture_output=True, text=True
    )


@pytest.fixture
def copy(tmp_path):
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    shutil.copytree(ROOT / "protos", tmp_path / "protos")
    (tmp_path / OPENAPI).parent.mkdir(parents=True)
    shutil.copy(ROOT / OPENAPI, tmp_path / OPENAPI)
    (tmp_path / ".venv-stubs").symlink_to(ROOT / ".venv-stubs")
    return tmp_path


def test_stubs_are_current(generator):
    done = generator(ROOT, "--check")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "name", ["translation_pb2.py", "translation_pb2.pyi", "translation_pb2_grpc.py", "models_pb2.py"]
)
def test_a_stub_that_is_out_of_date_is_found(generator, copy, name):
    stub = copy / "protos" / "translane" / "v1" / name
    current = stub.read_text(encoding="utf-8")
    stub.write_text(current + "# by hand\n", encoding="utf-8")
    done = generator(copy, "--check")
    assert done.returncode == 1
    assert f"{name} is out of date" in done.stderr
    assert generator(copy).returncode == 0
    assert stub.read_text(encoding="utf-8") == current


def test_a_description_of_the_http_port_that_is_out_of_date_is_found(generator, copy):
    current = (copy / OPENAPI).read_text(encoding="utf-8")
    (copy / OPENAPI).write_text(current.replace("Translate", "Transcribe"), encoding="utf-8")
    done = generator(copy, "--check")
    assert done.returncode == 1
    assert "openapi.json is out of date" in done.stderr
    assert generator(copy).returncode == 0
    assert (copy / OPENAPI).read_text(encoding="utf-8") == current


def test_a_changed_proto_is_found(generator, copy):
    proto = copy / "protos" / "translane" / "v1" / "translation.proto"
    proto.write_text(proto.read_text(encoding="utf-8") + "message Another {}\n", encoding="utf-8")
    assert generator(copy, "--check").returncode == 1


def test_requirements_begin_at_the_generator():
    """Stubs refuse to load beside an older protobuf or grpcio than the generator's."""
    protobuf = re.search(r"Protobuf Python Version: (\S+)", (STUBS / "translation_pb2.py").read_text(encoding="utf-8"))
    grpcio = re.search(
        r"GRPC_GENERATED_VERSION = '(\S+)'", (STUBS / "translation_pb2_grpc.py").read_text(encoding="utf-8")
    )
    assert protobuf is not None
    assert grpcio is not None
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for name, generated_by in (("protobuf", protobuf[1]), ("grpcio", grpcio[1])):
        (requirement,) = (r for r in map(Requirement, project["dependencies"]) if r.name == name)
        (lowest,) = (s.version for s in requirement.specifier if s.operator == ">=")
        numbers = tuple(map(int, generated_by.split(".")))
        assert tuple(map(int, lowest.split("."))) >= numbers[: len(lowest.split("."))], name
