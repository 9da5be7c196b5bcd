"""The committed stubs are what protoc makes of the .proto file."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[3]
STUBS = ROOT / "protos" / "translane" / "v1"


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
