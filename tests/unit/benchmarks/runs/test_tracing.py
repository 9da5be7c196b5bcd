"""The table of what traces cost."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

from benchmarks.runs import tracing
from benchmarks.runs.tracing import Runs, Setting


def setting(name, seconds, cpu):
    return cast("Setting", SimpleNamespace(name=name, runs={method: Runs(seconds, cpu) for method in tracing.METHODS}))


def test_settings_are_compared_with_the_first_round_by_round():
    found = tracing.table([setting("off", [0.010, 0.030], 0.001), setting("on", [0.011, 0.033], 0.0015)]).splitlines()
    assert len(found) == 2 + 2 * len(tracing.METHODS)
    assert found[2] == "| Translate | off | 20.00 | +0 | 1000 | +0 |"
    assert found[3] == "| Translate | on | 22.00 | +2000 | 1500 | +500 |"


def test_servers():
    names = tracing.environments("http://x:1", Path("elsewhere"))
    assert [*names] == ["before", "off", "1% recorded", "all recorded"]
    assert names["off"] == {}
    assert names["before"]["PYTHONPATH"].endswith("elsewhere/server")
    assert "before" not in tracing.environments("http://x:1", None)
