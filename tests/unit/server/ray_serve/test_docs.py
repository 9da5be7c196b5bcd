"""docs/ray-serve.md and deploy/ray say what is so."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
EXAMPLE = ROOT / "deploy" / "ray" / "serve.yaml"


def test_the_example_is_what_the_command_in_it_writes():
    yaml = pytest.importorskip("yaml", reason="the extra ray is not installed")
    from translane_server.ray_serve.command import config_of

    text = EXAMPLE.read_text(encoding="utf-8")
    (command,) = re.findall(r"^# +translane ray (.*)$", text, re.MULTILINE)
    assert yaml.safe_load(text) == config_of(command.split(), {})
