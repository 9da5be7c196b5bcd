"""docs/ray-serve.md and deploy/ray say what is so."""

import re
from pathlib import Path

import pytest

from translane_server.ray_serve import calls
from translane_server.ray_serve.settings import RaySettings
from translane_server.settings import ServerSettings

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs" / "ray-serve.md").read_text(encoding="utf-8")
EXAMPLE = ROOT / "deploy" / "ray" / "serve.yaml"


def test_settings():
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*) \|$", PAGE.replace("| |", "|  |"), re.MULTILINE)
    own = {name: field for name, field in RaySettings.model_fields.items() if name not in ServerSettings.model_fields}
    assert [name for name, _, _ in rows] == list(own)
    for name, default, meaning in rows:
        assert meaning == own[name].description
        assert default.strip() == ("" if own[name].default is None else str(own[name].default).lower())


def test_numbers():
    pytest.importorskip("ray.serve", reason="Ray is not installed")
    from translane_server.ray_serve.engine import METRICS_PORTS

    assert f"from `metrics_port` on, of {METRICS_PORTS};" in PAGE
    assert calls.ATTEMPTS == 3
    assert "three times in all" in PAGE


def test_the_example_is_what_the_command_in_it_writes():
    yaml = pytest.importorskip("yaml", reason="the extra ray is not installed")
    from translane_server.ray_serve.command import config_of

    text = EXAMPLE.read_text(encoding="utf-8")
    (command,) = re.findall(r"^# +translane ray (.*)$", text, re.MULTILINE)
    assert yaml.safe_load(text) == config_of(command.split(), {})
