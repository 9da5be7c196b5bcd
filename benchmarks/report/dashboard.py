"""Grafana's dashboard as it is shipped: its rows, panels and queries."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.places import ROOT

FOLDER = ROOT / "deploy" / "observability"

# The variables of the dashboard where everything is chosen.
_EVERYTHING = ("$job", "$instance", "$model")


@dataclass(frozen=True)
class Query:
    """A query of a panel.

    Attributes:
        text: PromQL with the dashboard's variables.
        legend: the name of each series, with its labels as `{{label}}`.
    """

    text: str
    legend: str

    def of_everything(self, interval: str) -> str:
        """PromQL of all servers and models, with rates over `interval`, such as 1m."""
        text = self.text.replace("$__rate_interval", interval)
        for variable in _EVERYTHING:
            text = text.replace(variable, ".*")
        return text


@dataclass(frozen=True)
class Panel:
    """A panel. Its place is that in Grafana's grid of 24 columns; `thresholds` are where it turns orange, then red."""

    title: str
    description: str
    kind: str
    unit: str
    stacked: bool
    x: int
    y: int
    width: int
    height: int
    queries: Sequence[Query]
    thresholds: Sequence[float]


@dataclass(frozen=True)
class Row:
    """A row of the dashboard."""

    title: str
    panels: Sequence[Panel]


def rows() -> list[Row]:
    """The rows of dashboard.json."""
    found: list[tuple[str, list[Panel]]] = []
    for panel in json.loads((FOLDER / "dashboard.json").read_text(encoding="utf-8"))["panels"]:
        if panel["type"] == "row":
            found.append((panel["title"], []))
        else:
            found[-1][1].append(_panel(panel))
    return [Row(title, panels) for title, panels in found]


def _panel(panel: dict[str, Any]) -> Panel:
    defaults, place = panel["fieldConfig"]["defaults"], panel["gridPos"]
    steps = defaults.get("thresholds", {}).get("steps", [])
    return Panel(
        title=panel["title"],
        description=panel["description"],
        kind=panel["type"],
        unit=defaults["unit"],
        stacked="stacking" in defaults.get("custom", {}),
        x=place["x"],
        y=place["y"],
        width=place["w"],
        height=place["h"],
        queries=[Query(target["expr"], target["legendFormat"]) for target in panel["targets"]],
        thresholds=[step["value"] for step in steps if step["value"] is not None],
    )
