"""README, CONTRIBUTING, CHANGELOG, the image and the deployment files say what is so."""

import json
import re
import tomllib
from pathlib import Path

import yaml

from translane_server.settings.model_sources import ModelPlace
from translane_server.settings.server_settings import ServerSettings

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
VERSION = PROJECT["version"]


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_version_is_the_same_everywhere():
    assert f"\n## [{VERSION}]" in read("CHANGELOG.md")
    assert f"ARG VERSION={VERSION}\n" in read("Dockerfile")
    chart = yaml.safe_load(read("deploy/helm/translane/Chart.yaml"))
    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)
    for page in ("README.md", "deploy/compose.yaml", "deploy/kubernetes.yaml"):
        assert set(re.findall(r"translane:([0-9][\w.]*)-cpu", read(page))) == {VERSION}
    assert set(re.findall(r"(?:@v|translane-|zh-en-)(\d+\.\d+\.\d+)", read("README.md"))) == {VERSION}


def test_the_image_names_the_licences():
    model = json.loads(read("models/zh-en/manifest.json"))["license"].replace(" ", "-")
    label = f'org.opencontainers.image.licenses="{PROJECT["license"]} AND LicenseRef-{model}"'
    assert label in read("Dockerfile")


def test_the_image_sets_what_the_server_knows():
    values = dict(re.findall(r"(TRANSLANE_\w+)=(\S+)", read("Dockerfile")))
    names = {name.removeprefix("TRANSLANE_").lower(): value for name, value in values.items()}
    settings = ServerSettings.model_validate(names)
    assert f"EXPOSE {settings.port} {settings.http_port} {settings.metrics_port}\n" in read("Dockerfile")
    assert settings.host == "0.0.0.0"
    assert settings.model is not None
    (model,) = settings.model
    assert isinstance(model, ModelPlace)
    assert f"COPY {model.folder.relative_to('/')} {model.folder}\n" in read("Dockerfile")
