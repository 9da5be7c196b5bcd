"""constraints.txt and constraints-cuda.txt pin everything the set-up installs, within pyproject.toml's ranges."""

import importlib.metadata
import re
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[3]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]


def lines(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def pins(*names):
    pinned = {}
    for name in names:
        for line in lines(name):
            if not line.startswith("-c "):
                package, version = line.split("==")
                assert package not in pinned, f"{package} is pinned twice"
                pinned[package] = Version(version)
    return pinned


BASE = pins("constraints.txt")
ALL = pins("constraints.txt", "constraints-cuda.txt")
SET_UPS = {
    "the build": PYPROJECT["build-system"]["requires"],
    "the base": PROJECT["dependencies"],
    **{f"the group {name}": requirements for name, requirements in PYPROJECT["dependency-groups"].items()},
    **PROJECT["optional-dependencies"],
}


@pytest.mark.parametrize("set_up", SET_UPS)
def test_every_requirement_is_pinned_within_its_range(set_up):
    pinned = ALL if set_up == "server-cuda" else BASE
    for requirement in map(Requirement, SET_UPS[set_up]):
        if requirement.name != "translane":
            name = canonicalize_name(requirement.name)
            assert name in pinned
            assert requirement.specifier.contains(pinned[name]), requirement


def test_what_the_makefile_installed_is_what_is_pinned():
    if not (Path(sys.prefix) / ".everything").exists():
        pytest.skip("not in the environment that make sets up")
    installed = {
        canonicalize_name(distribution.name): Version(distribution.version.partition("+")[0])
        for distribution in importlib.metadata.distributions(
            path=[str(Path(p)) for p in sys.path if "site-packages" in p]
        )
    }
    of_torch = re.compile(r"nvidia-|cuda-|triton")  # what torch's own metadata pins, where its wheel is one for GPUs
    unpinned = {name for name in installed if name not in BASE and not of_torch.match(name)}
    assert unpinned <= {"translane"}
    assert {name: version for name, version in installed.items() if BASE.get(name, version) != version} == {}
