"""What the serving benchmark makes of its measurements."""

from __future__ import annotations

import math

import pytest

from benchmarks.engines.ctranslate2_server_settings import ServerSetting, replaced
from benchmarks.report import serving_tables
from benchmarks.runs import serving


def measurement(p50: float | None, cpu: float = 0.003, failed: int = 0) -> dict:
    return {
        "latency_seconds": {"p50": p50, "p95": p50, "p99": p50, "max": p50},
        "cpu_seconds_per_sentence": cpu,
        "errors": {"UNAVAILABLE": failed} if failed else {},
    }


CELL = {
    "model": "demo",
    "precision": "fp32",
    "search": "greedy",
    "setting": "2 × 1 MKL",
    "highest_rate": {"translane": 90.0, "ctranslate2": 30.0},
    "grid": [
        {
            "rate": 2.0,
            "translane": [measurement(0.01), measurement(0.02), measurement(0.03)],
            "ctranslate2": [measurement(0.04, 0.006), measurement(0.04, 0.006), measurement(None, 0.006, failed=5)],
        }
    ],
}


def test_the_engines_take_turns():
    assert serving.turns(3) == ["translane", "ctranslate2", "ctranslate2", "translane", "translane", "ctranslate2"]


def test_the_grid_goes_up_to_nearly_what_the_faster_engine_can_take():
    assert serving.rates_between(100.0, 400.0, 2) == pytest.approx([90.0, 360.0])
    rates = serving.rates_between(100.0, 400.0, 4)
    assert (rates[0], rates[-1]) == pytest.approx((50.0, 360.0))
    assert rates == sorted(rates)
    assert serving.rates_between(1.0, 1.0, 4) == []


def test_the_tables_have_medians_and_ratios():
    *_, row = serving_tables.summary([CELL])
    assert "| 90.0 | 30.0 | **3.00** | 20.0 | 40.0 | 0.50 | 2 × 1 MKL |" in row
    *_, row = serving_tables.latencies([CELL])
    assert "| 2.0 | 20 / 20 / 20 | 3.0 | 0 | 40 / 40 / 40 | 6.0 | 5 | 0.50 |" in row
    assert serving_tables.median_of([measurement(None)], "p50") == math.inf


def test_settings_have_names_of_their_own():
    setting = ServerSetting("oneDNN", 2, 1)
    changed = [replaced(setting, **{name: 7}) for name in ("batch_size", "wait", "queued")]
    assert str(setting) == "2 × 1 oneDNN, batches of 32"
    assert len({str(each) for each in (setting, *changed)}) == 4
