"""The dashboard, the rules, the image, CHANGELOG, and the pins say what is so."""

import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from translane_server.observation.metrics import Metrics
from translane_server.settings.model_sources import ModelPlace
from translane_server.settings.server_settings import ServerSettings

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "deploy" / "observability"
DASHBOARD = json.loads((FOLDER / "dashboard.json").read_text(encoding="utf-8"))
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]
GROUPS = yaml.safe_load((FOLDER / "rules.yaml").read_text(encoding="utf-8"))["groups"]
RULES = [rule for group in GROUPS for rule in group["rules"]]
RECORDED = [rule["record"] for rule in RULES if "record" in rule]


def series_names():
    """The names of all series that a server has on its metrics port."""
    names = {"process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds", "process_max_fds", "up"}
    ends = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum"], "info": ["_info"], "gauge": [""]}
    for family in Metrics().registry.collect():
        if family.name.startswith(("translane_", "grpc_")):
            names |= {family.name + end for end in ends[family.type]}
    return names


def named(query):
    return set(re.findall(r"(?<![:\w$])(?:translane_|grpc_server_|process_|up\b)\w*(?![\w:])", query)) - {"grpc_code"}


def test_queries_keep_to_what_is_chosen():
    for query in QUERIES:
        for labels in re.findall(r"\{(.*?)\}", query):
            assert 'job=~"$job"' in labels
            assert 'instance=~"$instance"' in labels
    of_models = [query for query in QUERIES if "by (model" in query]
    assert of_models
    assert all('model=~"$model"' in query for query in of_models)


@pytest.mark.parametrize("query", [*QUERIES, *(rule["expr"] for rule in RULES)])
def test_a_query_names_metrics_that_there_are(query):
    recorded = set(re.findall(r"\w+:\w+:\w+", query))
    assert recorded <= set(RECORDED)
    assert named(query) <= series_names()
    assert recorded or named(query)


def test_every_series_of_models_and_calls_is_in_a_panel():
    used = set().union(*map(named, QUERIES))
    families = {re.sub(r"_(bucket|count|sum)$", "", name) for name in used}
    known = {re.sub(r"_(bucket|count|sum)$", "", name) for name in series_names() if name.startswith("translane_")}
    assert known - families == {"translane_rows_moved_total"}  # the panel of work has the time of these copies


def test_grafana_knows_how_often_prometheus_asks():
    prometheus = yaml.safe_load((ROOT / "deploy" / "prometheus.yaml").read_text(encoding="utf-8"))
    (source,) = yaml.safe_load((FOLDER / "grafana/datasources/prometheus.yaml").read_text())["datasources"]
    assert source["jsonData"]["timeInterval"] == prometheus["global"]["scrape_interval"]


# CHANGELOG has the version, the image sets what the server knows, and every requirement is pinned.


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_log_of_changes_has_the_version():
    """`scripts/set-version --check` asks of the other places."""
    version = tomllib.loads(read("pyproject.toml"))["project"]["version"]
    assert f"\n## [{version}]" in read("CHANGELOG.md")


def test_a_word_that_is_no_version_changes_no_file(tmp_path):
    (tmp_path / "scripts").mkdir()
    script = shutil.copy(ROOT / "scripts/set-version", tmp_path / "scripts")
    run = subprocess.run([script, "1.2.3\n2"], capture_output=True, text=True, timeout=60)
    assert (run.returncode, "is no version such as" in run.stderr) == (2, True)


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


def test_what_cuda_takes_is_pinned_within_its_range():
    pinned = dict(line.split("==") for line in read("constraints-cuda.txt").splitlines() if "==" in line)
    extras = tomllib.loads(read("pyproject.toml"))["project"]["optional-dependencies"]
    wanted = [each for each in map(Requirement, extras["server-cuda"]) if each.name != "translane"]
    assert {each.name for each in wanted if not each.specifier.contains(pinned[each.name])} == set()


def test_what_the_makefile_installed_is_what_is_pinned():
    if not (Path(sys.prefix) / ".everything").exists():
        pytest.skip("not in the environment that make sets up")
    lines = (line for line in read("constraints.txt").splitlines() if line and not line.startswith("#"))
    pinned = {package: Version(version) for package, version in (line.split("==") for line in lines)}
    installed = {
        canonicalize_name(distribution.name): Version(distribution.version.partition("+")[0])
        for distribution in importlib.metadata.distributions(
            path=[str(Path(p)) for p in sys.path if "site-packages" in p]
        )
    }
    of_torch = re.compile(r"nvidia-|cuda-|triton")  # what torch's own metadata pins, where its wheel is one for GPUs
    unpinned = {name for name in installed if name not in pinned and not of_torch.match(name)}
    assert unpinned <= {"translane"}
    assert {name: version for name, version in installed.items() if pinned.get(name, version) != version} == {}
