"""Where benchmarks read and write."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DEMO = ROOT / "models" / "zh-en"
RESULTS = ROOT / "runs" / "bench"
MODELS = RESULTS / "models"  # that are made once, and kept
SENTENCES = ROOT.parent / "shared" / "data" / "tatoeba-zh-en" / "test.tsv.gz"


def result(name: str, device: str = "cpu") -> Path:
    """The JSON file of what a benchmark measured on a device."""
    return RESULTS / ("" if device == "cpu" else device) / f"{name}.json"
