"""The tables that the serving benchmark makes of its measurements."""

from __future__ import annotations

import math
from typing import Any

from benchmarks.report import serving_tables


def measurement(p50: float | None, cpu: float = 0.003, failed: int = 0) -> dict[str, Any]:
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


def test_the_tables_have_medians_and_ratios():
    *_, row = serving_tables.summary([CELL])
    assert "| 90.0 | 30.0 | 3.00 | 20.0 | 40.0 | 2.00 | 2 × 1 MKL |" in row
    *_, row = serving_tables.latencies([CELL])
    assert "| 2.0 | 20 / 20 / 20 | 3.0 | 0 | 40 / 40 / 40 | 6.0 | 5 | 2.00 |" in row
    assert serving_tables.median_of([measurement(None)], "p50") == math.inf
