"""promtool reads the rules, the panels' queries and Prometheus's configuration, and tests the rules."""

import subprocess

import pytest
import yaml

from helpers.dashboard import FOLDER, queries


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
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("ratio > 0.8", "ratio > 0.95"),
        ("} > 0.01", "} > 0.001"),
        ("for: 10m", "for: 1m"),
    ],
)
def test_the_tests_notice_a_rule_that_is_wrong(tmp_path, right, wrong):
    rules = (FOLDER / "rules.yaml").read_text(encoding="utf-8")
    assert right in rules
    (tmp_path / "rules.yaml").write_text(rules.replace(right, wrong), encoding="utf-8")
    (tmp_path / "rules.test.yaml").write_bytes((FOLDER / "rules.test.yaml").read_bytes())
    code, _ = promtool("test", "rules", tmp_path / "rules.test.yaml")
    assert code == 1


def test_every_query_of_the_dashboard_is_promql(tmp_path):
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(queries("1m"))]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    code, said = promtool("check", "rules", tmp_path / "rules.yaml")
    assert code == 0, said
    assert f"{len(rules)} rules found" in said
