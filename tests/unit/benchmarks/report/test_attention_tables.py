"""What variants of attention cost, as tables of a page."""

import re

import pytest

from benchmarks.places import ROOT
from benchmarks.report.attention_tables import of_training, of_variants
from benchmarks.report.marked_part import replace_between, write_part
from benchmarks.runs import attention, training_attention

MACHINE = {"processor": "Some processor", "cores": 2, "versions": {"onnxruntime": "1", "torch": "2"}, "load": 0.1}
MACHINE["time"] = "2026-01-01T00:00:00Z"


def rows_of(lines):
    return [re.split(r" *\| *", line.strip("| ")) for line in lines if line.startswith("|") and "---" not in line]


def test_variants_have_ratios_and_the_plain_model_times():
    record = {
        "machine": MACHINE,
        "row_bytes": 4096,
        "plain": {"one": 0.0015, "other": 0.02},
        "variants": {"half": {"ratios": {"one": 0.5, "other": 1.254}, "row_bytes": 2048}},
    }
    assert rows_of(of_variants(record)) == [
        ["variant", "one", "other", "KiB a row and layer", "× plain"],
        ["plain", "1.50 ms", "20.00 ms", "4", "1"],
        ["half", "0.50", "1.25", "2", "0.5"],
    ]


def test_what_a_way_cannot_do_is_left_open():
    found = {"seconds": 0.25, "bytes": 3 * 2**20}
    record = {
        "machine": MACHINE,
        "ways": {"relative": {"2048": {"plain": found, "blocks": found}}},
        "blocks": {"2048": {"64": found, "128": found}},
    }
    head, row, blocks_head, blocks = rows_of(of_training(record))
    assert row == ["relative", "2,048", "250", "3", "–", "–", "250", "3"]
    assert blocks == ["2,048", "250", "3", "250", "3"]
    assert len(head) == len(row)
    assert len(blocks_head) == len(blocks)


def test_a_part_is_replaced_and_nothing_else():
    page = "before\nbegin\nold\nend\nafter\n"
    assert replace_between(page, "begin", "end", "new\n") == "before\nbegin\n\nnew\n\nend\nafter\n"
    with pytest.raises(ValueError, match="there are no lines 'begun' and 'end'"):
        replace_between(page, "begun", "end", "new")


@pytest.mark.parametrize(
    ("name", "command"), [("variants", attention.COMMAND), ("training", training_attention.COMMAND)]
)
def test_the_page_has_the_parts_that_are_written(tmp_path, name, command):
    page = tmp_path / "attention.md"
    page.write_text((ROOT / "docs" / "attention.md").read_text(encoding="utf-8"), encoding="utf-8")
    write_part(page, name, command, "what was measured")
    assert "\n\nwhat was measured\n\n<!--" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("formula", "way"), [(formula, way) for formula, ways in training_attention.FORMULAS.items() for way in ways]
)
def test_a_pass_is_measured(formula, way, monkeypatch):
    monkeypatch.setattr(training_attention, "SHORTEST", 0.0)
    found = training_attention.passes(formula, way, 16, 2, 8, 1)
    assert found["seconds"] > 0
    assert found["bytes"] >= 0
