"""The table of measurements, and its JSON."""

from __future__ import annotations

from array import array
from collections import Counter

from unit.client.bench.measured import measured

from translane_client.bench.report import as_json, headings, notes, row


def test_a_row_stands_under_its_headings():
    line = row(measured(0.1, 0.2, seconds=4.0, errors=Counter(UNAVAILABLE=2, ABORTED=1)), tokens=False)
    head = headings(clients=False, tokens=False)
    assert head.split() == ["offered/s", "answered/s", "p50", "ms", "p95", "ms", "p99", "ms", "max", "ms", "errors"]
    assert line.split() == ["50", "0.5", "100.0", "200.0", "200.0", "200.0", "ABORTED", "1,", "UNAVAILABLE", "2"]
    assert line.index("ABORTED") == head.index("errors")
    assert line[: head.index("answered/s") + len("answered/s")].endswith("0.5")


def test_a_row_with_tokens_and_one_without_answers():
    measurement = measured(0.1, rate=None, seconds=2.0, tokens_within=5000)
    assert headings(clients=True, tokens=True).split()[0] == "clients"
    assert row(measurement, tokens=True).split()[-2:] == ["2,500", "-"]
    assert row(measurement, tokens=True).split()[0] == "3"
    assert row(measured(unanswered=4), tokens=True).split() == ["50", "0.0", "-", "-", "-", "-", "-", "unanswered", "4"]


def test_notes_tell_of_a_generator_that_fell_behind_and_of_an_early_end():
    assert notes(measured(0.1, lags=array("d", [0.004]))) == []
    assert notes(measured(1.0, lags=array("d", [0.09]))) == []
    (note,) = notes(measured(0.1, lags=array("d", [0.02])))
    assert note.startswith("50 sentences/s: this generator could not keep up")
    assert "20 ms" in note
    (note,) = notes(measured(0.1, rate=None, seconds=1.5, broken_off=True))
    assert note == "3 clients: broken off after 1.5 s of measuring"


def test_json_has_base_units():
    report = as_json(measured(0.1, 0.3, seconds=4.0, errors=Counter(UNAVAILABLE=1)))
    assert report["latency_seconds"] == {"p50": 0.1, "p95": 0.3, "p99": 0.3, "max": 0.3}
    assert (report["rate"], report["requests"], report["answered_per_second"]) == (50.0, 3, 0.5)
    assert report["errors"] == {"UNAVAILABLE": 1}
    assert as_json(measured())["latency_seconds"]["p50"] is None
