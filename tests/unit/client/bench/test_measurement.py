"""What is measured: bounds, windows, quantiles, the table and its JSON."""

from __future__ import annotations

import math
from array import array
from collections import Counter

import pytest

from translane.v1 import translation_pb2 as pb
from translane_client.bench.load import tokens_of
from translane_client.bench.measurement import Measurement, late_requests_allowed, quantile


def measured(*latencies: float, rate: float | None = 50.0, seconds: float = 10.0, **values) -> Measurement:
    clients = None if rate else 3
    measurement = Measurement(rate, clients, 1, seconds=seconds, latencies=array("d", latencies), **values)
    measurement.answered_within = len(latencies)
    return measurement


@pytest.mark.parametrize(
    ("share", "expected"), [(0.5, 50), (0.95, 95), (0.951, 96), (0.99, 99), (1.0, 100), (0.001, 1)]
)
def test_quantiles_are_values_that_occurred(share: float, expected: float):
    assert quantile(range(1, 101), share) == expected


def test_quantiles_of_few_values():
    assert quantile([7.0], 0.5) == quantile([7.0], 0.99) == 7.0
    assert math.isnan(quantile([], 0.5))
    assert measured(0.3, 0.1, 0.2).quantiles == {"p50": 0.2, "p95": 0.3, "p99": 0.3, "max": 0.3}


def test_a_failure_is_infinitely_late_for_a_bound():
    assert measured(*[0.1] * 19, 9.0).keeps(0.5)
    assert not measured(*[0.1] * 18, 9.0, 9.0).keeps(0.5)
    assert measured(*[0.1] * 19, errors=Counter(UNAVAILABLE=1)).keeps(0.5)
    assert not measured(*[0.1] * 18, errors=Counter(UNAVAILABLE=1), unanswered=1).keeps(0.5)
    assert not measured().keeps(0.5)


@pytest.mark.parametrize("requests", [1, 19, 20, 21, 399, 400])
def test_what_may_be_late_is_what_the_bound_lets_be(requests: int):
    allowed = late_requests_allowed(requests)
    assert measured(*[0.1] * (requests - allowed), *[9.0] * allowed).keeps(0.5)
    assert not measured(*[0.1] * (requests - allowed - 1), *[9.0] * (allowed + 1)).keeps(0.5)


def test_what_is_measured_follows_the_warm_up():
    measurement = measured()
    assert measurement.begin(8.0, 2.0, 4.0) == 8.0
    assert [measurement.covers(at) for at in (9.9, 10.0, 13.9, 14.0)] == [False, True, True, False]


def test_tokens_are_those_of_all_hypotheses():
    hypothesis = pb.Hypothesis(tokens=["a", "b", "</s>"])
    translation = pb.Translation(hypotheses=[hypothesis, hypothesis])
    assert tokens_of(pb.TranslateResponse(translations=[translation, translation]).SerializeToString()) == 12


def test_notes_tell_of_a_generator_that_fell_behind_and_of_an_early_end():
    assert measured(0.1, lags=array("d", [0.004])).notes() == []
    assert measured(1.0, lags=array("d", [0.09])).notes() == []
    (note,) = measured(0.1, lags=array("d", [0.02])).notes()
    assert note.startswith("50 sentences/s: this generator could not keep up")
    assert "20 ms" in note
    (note,) = measured(0.1, rate=None, seconds=1.5, broken_off=True).notes()
    assert note == "3 clients: broken off after 1.5 s of measuring"


def test_json_has_base_units():
    report = measured(0.1, 0.3, seconds=4.0, errors=Counter(UNAVAILABLE=1)).as_json()
    assert report["latency_seconds"] == {"p50": 0.1, "p95": 0.3, "p99": 0.3, "max": 0.3}
    assert (report["rate"], report["requests"], report["answered_per_second"]) == (50.0, 3, 0.5)
    assert report["errors"] == {"UNAVAILABLE": 1}
    assert measured().as_json()["latency_seconds"]["p50"] is None
