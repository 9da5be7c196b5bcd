"""README, CONTRIBUTING, CHANGELOG, the image and the deployment files say what is so."""

import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from pydantic import BaseModel

import translane_client
from translane_batch.settings import BatchSettings
from translane_export.settings import ExportSettings
from translane_export.train.settings import TrainSettings
from translane_server.model_places import ModelPlace
from translane_server.observation.metrics import Metrics
from translane_server.settings import ServerSettings

ROOT = Path(__file__).parents[3]
PAGES = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "docs/architecture.md"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
VERSION = PROJECT["version"]
SETTINGS: dict[str, type[BaseModel]] = {
    "translane-server": ServerSettings,
    "translane-batch": BatchSettings,
    "translane-export": ExportSettings,
    "translane-train": TrainSettings,
}


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def table(page, heading):
    section = read(page).split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", read(page))
    missing = [link for link in links if "://" not in link and not ((ROOT / page).parent / link).exists()]
    if missing == ["models/zh-en/README.md"] and not (ROOT / "models" / "zh-en").exists():
        pytest.skip("the bundled model is not in this tree")
    assert missing == []


@pytest.mark.parametrize("page", PAGES)
def test_what_can_be_made_exists(page):
    targets = set(re.findall(r"^([a-z]+):", read("Makefile"), re.MULTILINE))
    assert set(re.findall(r"(?:`|^    )make ([a-z]+)", read(page), re.MULTILINE)) <= targets


def test_help_lists_every_target():
    targets = set(re.findall(r"^([a-z]+):", read("Makefile"), re.MULTILINE))
    done = subprocess.run(["make", "--no-print-directory", "help"], cwd=ROOT, capture_output=True, text=True)
    assert set(re.findall(r"^  make ([a-z]+) {2,}\S", done.stdout, re.MULTILINE)) == targets


@pytest.mark.parametrize("command", SETTINGS)
def test_the_commands_shown_have_these_flags(command):
    page = read("README.md").replace("\\\n", " ")
    shown = re.findall(rf"^    {command} (.*)", page, re.MULTILINE)
    assert shown
    known = {"--" + name.replace("_", "-") for name in SETTINGS[command].model_fields}
    assert {flag for line in shown for flag in re.findall(r"--[a-z-]+", line)} <= known


def test_the_settings_shown_have_these_defaults():
    fields = ServerSettings.model_fields
    for flags, defaults, _ in table("README.md", "Settings"):
        if defaults == "required":
            assert flags == "`--model`, or `--models`"
            continue
        for flag, default in zip(re.findall(r"`--([a-z-]+)`", flags), defaults.split(", "), strict=True):
            field = fields[flag.replace("-", "_")]
            assert not field.is_required()
            if field.default is None:
                assert default in ("CPUs granted", "by the model")
            else:
                assert type(field.default)(default) == field.default


def test_the_metrics_shown_exist():
    suffixes = {"counter": "_total", "info": "_info"}
    declared = {family.name + suffixes.get(family.type, "") for family in Metrics().registry.collect()}
    shown = set(re.findall(r"`((?:translane|grpc_server)_\w+)`", read("README.md").split("\n## Metrics\n")[1]))
    assert shown
    assert shown <= declared


def test_layout_names_every_top_level_folder():
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if tracked.returncode != 0:
        pytest.skip("not a git repository")
    folders = {line.split("/")[0] for line in tracked.stdout.splitlines() if "/" in line}
    listed = {row[0].strip("`/") for row in table("CONTRIBUTING.md", "Layout")}
    assert {folder for folder in folders if not folder.startswith(".")} - {"docs", "scripts"} <= listed


def test_the_version_is_the_same_everywhere():
    assert f"\n## [{VERSION}]" in read("CHANGELOG.md")
    assert f"ARG VERSION={VERSION}\n" in read("Dockerfile")
    for page in ("README.md", "deploy/compose.yaml", "deploy/kubernetes.yaml"):
        assert set(re.findall(r"translane:([0-9][\w.]*)-cpu", read(page))) == {VERSION}
    assert set(re.findall(r"(?:@v|translane-|zh-en-)(\d+\.\d+\.\d+)", read("README.md"))) == {VERSION}


def test_the_image_names_the_licences():
    model = json.loads(read("models/zh-en/manifest.json"))["license"].replace(" ", "-")
    label = f'org.opencontainers.image.licenses="{PROJECT["license"]} AND LicenseRef-{model}"'
    assert label in read("Dockerfile")


def test_all_files_name_the_same_repository():
    source = PROJECT["urls"]["Source"]
    assert f'org.opencontainers.image.source="{source}"' in read("Dockerfile")
    for page in ("README.md", "SECURITY.md"):
        assert set(re.findall(r"https://github\.com/translane/\w+", read(page))) == {source}


def test_the_reference_of_the_client_has_every_exported_name():
    shown = re.findall(r"^\.\. auto(?:class|exception):: (\w+)$", read("docs/client-reference.md"), re.MULTILINE)
    assert sorted(shown) == sorted(translane_client.__all__)


def test_the_image_sets_what_the_server_knows():
    values = dict(re.findall(r"(TRANSLANE_\w+)=(\S+)", read("Dockerfile")))
    names = {name.removeprefix("TRANSLANE_").lower(): value for name, value in values.items()}
    settings = ServerSettings.model_validate(names)
    assert f"EXPOSE {settings.port} {settings.metrics_port}\n" in read("Dockerfile")
    assert settings.host == "0.0.0.0"
    assert settings.model is not None
    (model,) = settings.model
    assert isinstance(model, ModelPlace)
    assert f"COPY {model.folder.relative_to('/')} {model.folder}\n" in read("Dockerfile")
