"""The dashboard and the rules name what there is."""

import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml

from translane_server.observation.metrics import Metrics

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "deploy" / "observability"
DASHBOARD = json.loads((FOLDER / "dashboard.json").read_text(encoding="utf-8"))
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]
GROUPS = yaml.safe_load((FOLDER / "rules.yaml").read_text(encoding="utf-8"))["groups"]
RULES = [rule for group in GROUPS for rule in group["rules"]]
ALERTS = [rule for rule in RULES if "alert" in rule]
RECORDED = [rule["record"] for rule in RULES if "record" in rule]
PAGE = (ROOT / "docs" / "dashboards.md").read_text(encoding="utf-8")


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


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_an_alert_says_what_to_do(alert):
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
    name, annotations = alert["alert"], alert["annotations"]
    assert set(annotations) == {"summary", "description", "runbook_url"}
    assert annotations["runbook_url"] == f"{urls['Source']}/blob/main/docs/dashboards.md#{name.lower()}"
    assert f"\n### {name}\n\n1. " in PAGE.split("\n## Runbook\n")[1]
    assert alert["labels"]["severity"] in ("critical", "warning")


def test_prometheus_and_grafana_are_told_of_these_files():
    prometheus = yaml.safe_load((ROOT / "deploy" / "prometheus.yaml").read_text(encoding="utf-8"))
    assert [ROOT / "deploy" / rules for rules in prometheus["rule_files"]] == [FOLDER / "rules.yaml"]
    (source,) = yaml.safe_load((FOLDER / "grafana/datasources/prometheus.yaml").read_text())["datasources"]
    assert source["jsonData"]["timeInterval"] == prometheus["global"]["scrape_interval"]
