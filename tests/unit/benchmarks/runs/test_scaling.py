"""How steps are told apart from what is done once, and the tables."""

import pytest

from benchmarks.report.scaling_tables import tables
from benchmarks.runs.agreement import mismatches
from benchmarks.runs.scaling import load_of, per_step


def test_a_step_is_what_longer_translations_take():
    once, step = 5.0, 0.25
    times = {length: [once + step * length, 100.0, 0.0] for length in (8, 32, 40)}
    assert per_step(times, (8, 32, 40)) == pytest.approx({32: step, 40: step})


def test_a_load_has_as_many_sentences_as_rows():
    load = load_of(9, 20)
    assert len(load.sources) == load.batch == 9
    assert load.lengths == (20,) * 9
    assert len({len(source) for source in load.sources}) == 1


def test_tables_have_ratios_and_sizes():
    steps = {"translane": {8: 0.001}, "ctranslate2": {8: 0.003}}
    found = {
        "rows": steps,
        "lengths": steps,
        "memory": {8: {"translane": 2_000_000, "ctranslate2": 1_000_000}},
        "start": {"translane": 0.5, "ctranslate2": 0.25},
    }
    text = tables("demo", found)
    assert text.count("| 8 | 1.00 | 3.00 | 3.00 |") == 2
    assert "| 8 | 2 | 1 |" in text
    assert "Translane 0.50 s, CTranslate2 0.25 s" in text


def test_translations_that_differ_are_counted():
    assert mismatches([(1, 2), (3,)], [(1, 2), (3, 4)]) == 1
