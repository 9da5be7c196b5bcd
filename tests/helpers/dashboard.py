"""The queries of Grafana's dashboard as it is shipped."""

import json
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "observability"

# The variables of the dashboard where everything is chosen.
_EVERYTHING = ("$job", "$instance", "$model")


def queries(interval: str) -> list[str]:
    """PromQL of all panels, for all servers and models, with rates over `interval`, such as 1m."""
    panels = json.loads((FOLDER / "dashboard.json").read_text(encoding="utf-8"))["panels"]
    texts = [
        target["expr"].replace("$__rate_interval", interval) for panel in panels for target in panel.get("targets", ())
    ]
    for variable in _EVERYTHING:
        texts = [text.replace(variable, ".*") for text in texts]
    return texts
