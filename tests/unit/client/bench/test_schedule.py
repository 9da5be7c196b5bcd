"""When requests are sent, and what is in them."""

from __future__ import annotations

import statistics
from collections import Counter
from itertools import islice

import pytest

from translane.v1 import translation_pb2 as pb
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
