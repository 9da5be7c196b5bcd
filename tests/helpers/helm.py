"""Helm without its command. It runs in a process of its own: its library brings threads, which no fork survives."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "translane"
EXAMPLES = ROOT / "deploy" / "helm" / "examples"

Manifest = dict[str, Any]

# Renders and lints the chart for each set of values; the answer to a set is what happened with it.
_PROGRAM = """
import json, sys
import helm_python as helm
question = json.load(sys.stdin)
answers = []
with helm.Chart.load(question["chart"]) as chart:
    for values in question["sets"]:
        try:
            rendered = chart.render(values, name=question["release"], namespace="translation")
            answers.append({"rendered": rendered, "lint": helm.lint(question["chart"], values, strict=True)})
        except helm.HelmError as error:
            answers.append({"refused": str(error)})
json.dump(answers, sys.stdout)
"""


class RefusedError(Exception):
    """Helm refuses the values."""


def _ask(sets: list[dict[str, Any]], release: str) -> list[dict[str, Any]]:
    question = json.dumps({"chart": str(CHART), "sets": sets, "release": release})
    ran = subprocess.run([sys.executable, "-c", _PROGRAM], input=question, capture_output=True, text=True, check=True)
    answers: list[dict[str, Any]] = json.loads(ran.stdout)
    return answers


def refusals(sets: list[dict[str, Any]]) -> list[str]:
    """What Helm says to each set of values; "" where it renders the chart."""
    return [answer.get("refused", "") for answer in _ask(sets, "translane")]


def rendered(sets: list[dict[str, Any]], release: str = "translane") -> list[tuple[list[Manifest], list[str]]]:
    """The manifests of the chart with each set of values, and the warnings and errors of `helm lint --strict`.

    Raises:
        RefusedError: Helm refuses the values.
    """
    return [_manifests_and_findings(answer) for answer in _ask(sets, release)]


def manifests(values: dict[str, Any], release: str = "translane") -> list[Manifest]:
    """The manifests of the chart with these values."""
    ((found, _),) = rendered([values], release)
    return found


def _manifests_and_findings(answer: dict[str, Any]) -> tuple[list[Manifest], list[str]]:
    if "refused" in answer:
        raise RefusedError(answer["refused"])
    texts = [text for name, text in answer["rendered"].items() if name.endswith(".yaml")]
    report = answer["lint"]
    findings = [message["error"] for message in report["messages"] if message["severity"] > 1] + report["errors"]
    return [document for text in texts for document in yaml.safe_load_all(text) if document], findings


def of_kind(documents: list[Manifest], kind: str) -> Manifest:
    """The only manifest of this kind."""
    (manifest,) = [each for each in documents if each["kind"] == kind]
    return manifest


def container_of(documents: list[Manifest]) -> Manifest:
    """The server's container."""
    (container,) = of_kind(documents, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert isinstance(container, dict)
    return container
