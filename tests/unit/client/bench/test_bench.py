"""What the command bench sends and when, what it measures, and how it searches the highest rate."""

from __future__ import annotations

import math
import statistics
from array import array
from collections import Counter
from itertools import islice

import pytest

from translane.v1 import translation_pb2 as pb
from translane_client.bench.benchmark import RateSearch
from translane_client.bench.load import tokens_of
from translane_client.bench.measurement import Measurement, late_requests_allowed, quantile
from translane_client.bench.requests import Text, arrivals, serialized_requests


def test_arrivals_are_a_poisson_process_that_the_seed_settles():
    times = list(islice(arrivals(20.0, seed=3), 20_000))
    assert times == list(islice(arrivals(20.0, seed=3), 20_000))
    assert times[0] != next(arrivals(20.0, seed=4))
    gaps = [later - earlier for earlier, later in zip([0.0, *times], times, strict=False)]
    assert min(gaps) >= 0
    assert statistics.mean(gaps) == pytest.approx(1 / 20, rel=0.03)
    assert statistics.stdev(gaps) == pytest.approx(1 / 20, rel=0.03)  # that of an exponential distribution is its mean
    counts = [sum(1 for at in times if second <= at < second + 1) for second in range(900)]
    assert statistics.variance(counts) == pytest.approx(20, rel=0.15)  # and a Poisson count's variance is its mean


def parsed(requests, count: int) -> list[pb.TranslateRequest]:
    return [pb.TranslateRequest.FromString(each) for each in islice(requests, count)]


def test_all_texts_are_sent_equally_often_in_another_order_for_another_seed():
    texts = [Text(str(number)) for number in range(10)]
    settings = pb.TranslateRequest(model="m", options=pb.DecodingOptions(beam_size=4))
    requests = parsed(serialized_requests(texts, 3, settings, seed=0), 20)
    assert {len(request.texts) for request in requests} == {3}
    assert set(Counter(text for request in requests for text in request.texts).values()) == {6}
    assert {(request.model, request.options.beam_size) for request in requests} == {("m", 4)}
    orders = {
        tuple(t for r in parsed(serialized_requests(texts, 1, settings, seed), 10) for t in r.texts)
        for seed in range(5)
    }
    assert len(orders) == 5


def test_a_request_has_the_longest_of_its_lengths():
    texts = [Text("a", 5), Text("b", 9)]
    (request,) = parsed(serialized_requests(texts, 2, pb.TranslateRequest(), seed=0), 1)
    assert request.options.max_length == 9
    lengths = {
        r.texts[0]: r.options.max_length for r in parsed(serialized_requests(texts, 1, pb.TranslateRequest(), 0), 2)
    }
    assert lengths == {"a": 5, "b": 9}
    (plain,) = parsed(serialized_requests([Text("a")], 1, pb.TranslateRequest(), seed=0), 1)
    assert not plain.options.HasField("max_length")


# What is measured: bounds, windows, quantiles, the table and its JSON.


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


# The search for the highest rate that keeps a bound.


@pytest.mark.parametrize("capacity", [0.7, 3.0, 97.3, 100.0, 1234.5])
@pytest.mark.parametrize("start", [1.0, 90.0, 5000.0])
def test_the_search_finds_the_highest_rate_that_is_kept(capacity: float, start: float):
    search, tried = RateSearch(start, trials=60), []
    while (rate := search.next_rate()) is not None:
        tried.append(rate)
        search.tell(rate, is_kept=rate <= capacity)
    assert tried[0] == start
    assert search.kept is not None
    assert capacity / 1.04 <= search.kept <= capacity
    assert all(tried.count(rate) == (1 if rate <= capacity else 2) for rate in tried)
    assert len(set(tried)) < 30


def test_a_rate_that_fails_once_is_tried_again():
    search = RateSearch(100.0, trials=9)
    outcomes = iter([False, True, False, False, True])
    tried = []
    for is_kept in outcomes:
        rate = search.next_rate()
        assert rate is not None
        tried.append(rate)
        search.tell(rate, is_kept=is_kept)
    assert tried == pytest.approx([100.0, 100.0, 150.0, 150.0, math.sqrt(100.0 * 150.0)])
    assert (search.kept, search.failed) == (tried[-1], 150.0)


def test_the_search_ends_after_its_trials():
    search = RateSearch(100.0, trials=5)
    tried = 0
    while (rate := search.next_rate()) is not None:
        tried += 1
        search.tell(rate, is_kept=False)
    assert (tried, search.kept) == (5, None)
    assert search.failed == pytest.approx(100.0 / 1.5**2)
