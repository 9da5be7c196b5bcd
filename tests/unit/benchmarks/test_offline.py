"""The table of the offline benchmark."""

import machine
import offline
from contest import outcome
from decoder_process import Decoded


def test_a_row_has_rates_settings_and_ratios():
    ours = outcome({"2 × 1": [Decoded(1.0, 2.0, 3000)]}, {}, 1)
    theirs = outcome({"1 × 2 MKL": [Decoded(2.0, 2.0, 3000)]}, {}, 1)
    cell = offline.Cell("demo", "fp32", "greedy", 32)
    row = offline.row(cell, {"translane": ours, "ctranslate2": theirs})
    assert row == "| demo | fp32 | greedy | 32 | 3,000 | 2 × 1 | 1,500 | 1 × 2 MKL | **2.00** | 1.00 | – |"
    row = offline.row(cell, {"translane": ours, "ctranslate2": theirs, "hugging_face": theirs})
    assert row.endswith("| 1.00 | 1,500 |")


def test_rows_fit_the_header():
    cells = [line.count("|") for line in offline.header(machine.describe()).splitlines()[-2:]]
    assert cells == [12, 12]


def test_the_machine_is_described():
    described = machine.describe()
    assert described["cores"] >= 1
    assert described["processor"]
    assert "onnxruntime" in described["versions"]


def test_a_package_that_is_not_there_has_no_version():
    assert machine.version_of("no-such-package-of-ours") is None
