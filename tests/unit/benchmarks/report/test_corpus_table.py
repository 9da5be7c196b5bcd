"""The table of a corpus, from a record."""

from __future__ import annotations

import pytest

from benchmarks.report.corpus_table import corpus_table, is_right

ROW = {
    "records": 1_000_000,
    "different": 60_000,
    "kills": 2,
    "lost": 0,
    "extra": 0,
    "wrong": 0,
    "seconds": 63.2,
    "summary": {
        "records": 1_000_000, "sources_translated": 20_000, "translating_seconds": 12.5, "writing_seconds": 8.0,
    },
    "memory_of_the_command": 70 << 20,
    "memory_of_all": 400 << 20,
}  # fmt: skip
MACHINE = {"machine": {"processor": "a processor", "cores": 2}, "usage": {"others": 0.209}}


def test_the_figures():
    assert corpus_table({**MACHINE, "rows": [ROW]}).splitlines()[2:] == [
        "| records; different texts | 1,000,000; 60,000 |",
        "| kills | 2 |",
        "| records that are lost; too many; wrong | 0; 0; 0 |",
        "| time of all starts together | 63 s |",
        "| different texts translated, after the last kill | 1,600 a second |",
        "| records written | 125,000 a second |",
        "| most memory of the command; with its replicas | 70 MiB; 400 MiB |",
        "",
        "On a processor, 2 cores. Other programs had 21% of them meanwhile.",
    ]


def test_a_step_that_took_no_time_has_no_rate():
    summary = {**ROW["summary"], "translating_seconds": 0.0}  # type: ignore[dict-item]
    assert "after the last kill | – |" in corpus_table({**MACHINE, "rows": [{**ROW, "summary": summary}]})


@pytest.mark.parametrize("wrong", ["lost", "extra", "wrong"])
def test_what_is_wrong_is_noticed(wrong):
    assert is_right({"rows": [ROW]})
    assert not is_right({"rows": [{**ROW, wrong: 1}]})
