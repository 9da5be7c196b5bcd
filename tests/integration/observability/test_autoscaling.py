"""promtool computes what the autoscalers ask Prometheus for: the chart's queries for KEDA, and prometheus-adapter's."""

import subprocess

import pytest
import yaml

pytest.importorskip("helm_python", reason="helm-python-sdk is not installed")

from helpers.helm import EXAMPLES, ROOT, manifests, of_kind
from translane_server.observation.metrics import Metrics

ADAPTER = ROOT / "deploy" / "helm" / "prometheus-adapter.yaml"
FIRST, SECOND = "translane-6f9c8d7b5-abcde", "translane-6f9c8d7b5-fghij"
# Pods of another release, whose name begins alike, and of another namespace.
OTHERS = ("translation", "translane-gpu-6f9c8d7b5-abcde"), ("elsewhere", FIRST)


def series(name, value, pod, namespace="translation", **labels):
    text = ",".join(f'{key}="{each}"' for key, each in {"namespace": namespace, "pod": pod, **labels}.items())
    return {"series": f"{name}{{{text}}}", "values": f"{value}x40"}


def rows(active, limit, pod, namespace="translation", **labels):
    return [
        series("translane_rows", active, pod, namespace, state="active", **labels),
        series("translane_rows", limit - active, pod, namespace, state="free", **labels),
        series("translane_rows_limit", limit, pod, namespace, **labels),
    ]


# The first pod has two models, the second one model.
LOAD = [
    *rows(64, 128, FIRST, model="a"),
    *rows(16, 32, FIRST, model="b"),
    *rows(64, 64, SECOND, model="a"),
    series("translane_sentences_waiting", 10, FIRST, model="a"),
    series("translane_sentences_waiting", 20, FIRST, model="b"),
    series("translane_sentences_waiting", 5, SECOND, model="a"),
]
for where, other in OTHERS:
    LOAD += rows(64, 64, other, where, model="a")
    LOAD.append(series("translane_sentences_waiting", 1000, other, where, model="a"))


def assert_evaluates(tmp_path, query, expected):
    """Compare the samples of a query, by pod, with those expected; no pod is the empty text."""
    samples = [{"labels": f'{{pod="{pod}"}}' if pod else "{}", "value": value} for pod, value in expected.items()]
    case = {"interval": "15s", "input_series": LOAD}
    case["promql_expr_test"] = [{"expr": query, "eval_time": "5m", "exp_samples": samples}]
    file = tmp_path / "autoscaling.test.yaml"
    file.write_text(yaml.safe_dump({"evaluation_interval": "15s", "tests": [case]}))
    done = subprocess.run(["promtool", "test", "rules", file], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def of_keda():
    values = yaml.safe_load((EXAMPLES / "keda.yaml").read_text())
    triggers = of_kind(manifests(values), "ScaledObject")["spec"]["triggers"]
    return {trigger["name"]: trigger["metadata"]["query"] for trigger in triggers}


def of_the_adapter():
    """Its queries with names filled in as the adapter does for two pods of a namespace."""
    queries = {}
    for rule in yaml.safe_load(ADAPTER.read_text())["rules"]["custom"]:
        filled = rule["metricsQuery"].replace("<<.Series>>", rule["seriesQuery"].partition("{")[0])
        filled = filled.replace("<<.LabelMatchers>>", f'namespace="translation",pod=~"{FIRST}|{SECOND}"')
        queries[rule["name"]["as"]] = filled.replace("<<.GroupBy>>", "pod")
    return queries


@pytest.mark.parametrize(("name", "value"), [("sentences-waiting", 35), ("busy-rows", 1.5)])
def test_keda_gets_sums_over_the_pods_of_its_release(tmp_path, name, value):
    assert_evaluates(tmp_path, of_keda()[name], {"": value})


@pytest.mark.parametrize(
    ("name", "first", "second"), [("translane_sentences_waiting", 30, 5), ("translane_busy_rows", 0.5, 1)]
)
def test_the_adapter_gets_a_number_for_each_pod(tmp_path, name, first, second):
    assert_evaluates(tmp_path, of_the_adapter()[name], {FIRST: first, SECOND: second})


def test_the_autoscaler_asks_for_what_the_adapter_has():
    values = yaml.safe_load((EXAMPLES / "autoscaled.yaml").read_text())
    metrics = of_kind(manifests(values), "HorizontalPodAutoscaler")["spec"]["metrics"]
    assert {metric["pods"]["metric"]["name"] for metric in metrics} == set(of_the_adapter())


def test_the_queries_name_metrics_of_the_server():
    names = {metric.name for metric in Metrics().registry.collect()}
    for metric in ("translane_sentences_waiting", "translane_rows", "translane_rows_limit"):
        assert metric in names
