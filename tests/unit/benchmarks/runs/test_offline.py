"""The table of the offline benchmark."""

from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import machine
from benchmarks.engines import settings
from benchmarks.engines.decoder_process import Decoded
from benchmarks.measuring.contest import outcome
from benchmarks.models.benchmarked import BenchmarkedModel
from benchmarks.models.workload import Pair
from benchmarks.report import offline_tables
from benchmarks.runs import offline


def test_a_row_has_rates_settings_and_ratios():
    ours = outcome({"2 × 1": [Decoded(1.0, 2.0, 3000)]}, {}, 1)
    theirs = outcome({"1 × 2 MKL": [Decoded(2.0, 2.0, 3000)]}, {}, 1)
    cell = asdict(offline.Cell("demo", "fp32", "greedy", 32))
    cell |= {"translane": asdict(ours), "ctranslate2": asdict(theirs)}
    row = offline_tables.row(cell)
    assert row == "| demo | fp32 | greedy | 32 | 3,000 | 2 × 1 | 1,500 | 1 × 2 MKL | 2.00 | 1.00 | – |"
    row = offline_tables.row(cell | {"hugging_face": asdict(theirs)})
    assert row.endswith("| 1.00 | 1,500 |")


@pytest.mark.parametrize(
    ("precision", "batch", "device", "takes_part"),
    [
        ("fp32", 8, "cpu", True),
        ("fp16", 32, "cuda", True),
        ("fp16", 8, "cpu", False),  # which is not what PyTorch would compute there
        ("int8", 8, "cpu", False),
        ("fp16", 64, "cuda", False),
    ],
)
def test_hugging_face_takes_part_in_the_precision_that_it_computes_in(
    precision, batch, device, takes_part, monkeypatch, tmp_path
):
    monkeypatch.setattr(offline, "base_folder", lambda folder: folder / "base")
    asked: Any = SimpleNamespace(hold=lambda opening, **_loads: opening)
    pairs = [Pair((5, 6, 0), 4)]
    cell = offline.Cell("base", precision, "greedy", batch)
    model = BenchmarkedModel(tmp_path / "bundle", tmp_path / "peer")
    opening: Any = offline.measure(asked, cell, model, pairs, offline.QUICK, device)
    expected = {"model": tmp_path / "base", "device": device} if takes_part else None
    (setting,) = settings.settings_of_hugging_face(2)
    assert opening(setting) == expected


def test_on_cuda_every_engine_takes_part():
    assert set(settings.settings_on_cuda(2)) == {"translane", "ctranslate2", "hugging_face"}


def test_rows_fit_the_header():
    cells = [line.count("|") for line in offline_tables.header(machine.describe()).splitlines()[-2:]]
    assert cells == [12, 12]


def test_the_machine_is_described():
    described = machine.describe()
    assert described["cores"] >= 1
    assert described["processor"]
    assert "onnxruntime" in described["versions"]


def test_a_package_that_is_not_there_has_no_version():
    assert machine.version_of("no-such-package-of-ours") is None
