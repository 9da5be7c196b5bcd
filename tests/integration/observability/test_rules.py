"""promtool reads the rules and Prometheus's configuration, and tests the rules."""

import subprocess
from typing import Any

import pytest
import yaml

from helpers.helm import manifests, of_kind
from helpers.prometheus import FOLDER


def promtool(*arguments):
    done = subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


def test_rules_and_configuration_are_right():
    # the configuration names the rules
    code, said = promtool("check", "config", "--lint=all", "--lint-fatal", FOLDER.parent / "prometheus.yaml")
    assert code == 0, said
    assert "SUCCESS: 1 rule files found" in said


@pytest.mark.slow
def test_alerts_fire_when_they_should():
    code, said = promtool("test", "rules", FOLDER / "rules.test.yaml")
    assert code == 0, said


@pytest.mark.slow
def test_two_releases_have_alerts_of_their_own(tmp_path):
    """Whatever their names are; each is told of its own pods, once, by thresholds of its own."""
    monitored = {"podMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}}
    slow = {**monitored, "prometheusRule": {"enabled": True, "thresholds": {"TranslaneSlowRequests": 50}}}
    releases: dict[str, dict[str, Any]] = {
        "words": {"fullnameOverride": "words"} | monitored,
        "slow": {"fullnameOverride": "slow"} | slow,
    }
    series, expected = [], []
    for name, values in releases.items():
        spec = of_kind(manifests(values), "PrometheusRule")["spec"]
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(spec), encoding="utf-8")
        labels = f'job="translation/{name}", instance="a", model="m"'
        for bucket, count in (("5", 0), ("30", 60), ("+Inf", 60)):
            metric = f'translane_request_duration_seconds_bucket{{{labels}, result="ok", le="{bucket}"}}'
            series.append({"series": metric, "values": f"0+{count}x60"})
        series.append({"series": f"translane_replica_losses_total{{{labels}}}", "values": "0+0x50 9+0x10"})
        series.append({"series": f'up{{job="translation/{name}", instance="a"}}', "values": "1+0x60"})
        common = f'alertstate="firing", job="translation/{name}", model="m"'
        if name == "words":
            expected.append(f'ALERTS{{alertname="TranslaneSlowRequests", severity="warning", {common}}}')
        lost = {"TranslaneReplicaLost": "warning", "TranslaneReplicasKeepFailing": "critical"}
        for alert, severity in lost.items():
            expected.append(f'ALERTS{{alertname="{alert}", severity="{severity}", instance="a", {common}}}')
    test = {
        "interval": "1m",
        "input_series": series,
        "promql_expr_test": [
            {
                "expr": 'ALERTS{alertstate="firing"}',
                "eval_time": "55m",
                "exp_samples": [{"labels": labels, "value": 1} for labels in expected],
            }
        ],
    }
    files = [f"{name}.yaml" for name in releases]
    (tmp_path / "test.yaml").write_text(yaml.safe_dump({"rule_files": files, "tests": [test]}), encoding="utf-8")
    code, said = promtool("test", "rules", tmp_path / "test.yaml")
    assert code == 0, said
