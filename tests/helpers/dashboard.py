"""The queries of Grafana's dashboard, and Prometheus's rules, as they are shipped."""

import json
import re
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "observability"

# The variables of the dashboard where everything is chosen.
_EVERYTHING = ("$job", "$instance", "$model")

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_RANGE = re.compile(r"\[(\d+)([smhd])\]")
_DURATION = re.compile(r"(\d+)([smhd])")


def queries(interval: str) -> list[str]:
    """PromQL of all panels, for all servers and models, with rates over `interval`, such as 1m."""
    panels = json.loads((FOLDER / "dashboard.json").read_text(encoding="utf-8"))["panels"]
    texts = [
        target["expr"].replace("$__rate_interval", interval) for panel in panels for target in panel.get("targets", ())
    ]
    for variable in _EVERYTHING:
        texts = [text.replace(variable, ".*") for text in texts]
    return texts


def hasty_rules(rules: Path, times: int) -> str:
    """The YAML of `rules`, whose ranges and `for` are `times` shorter: minutes pass in seconds. No threshold changes.

    Raises:
        ValueError: a duration is not a number and one of s, m, h and d.
    """
    content: dict[str, Any] = yaml.safe_load(rules.read_text(encoding="utf-8"))
    for rule in (rule for group in content["groups"] for rule in group["rules"]):
        rule["expr"] = _RANGE.sub(lambda found: f"[{_shorter(found[1] + found[2], times)}]", rule["expr"])
        if "for" in rule:
            rule["for"] = _shorter(rule["for"], times)
    return yaml.safe_dump(content, allow_unicode=True)


def _shorter(duration: str, times: int) -> str:
    found = _DURATION.fullmatch(duration)
    if not found:
        raise ValueError(f"{duration} is not a number and a unit")
    return f"{1000 * int(found[1]) * _SECONDS[found[2]] // times}ms"
