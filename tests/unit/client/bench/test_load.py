"""Bounds, windows and answers of a load."""

from __future__ import annotations

from collections import Counter

import pytest
from unit.client.bench.measured import measured

from translane.v1 import translation_pb2 as pb
from translane_client.bench.load import Bound, Window, tokens_of


def test_a_failure_is_infinitely_late_for_a_bound():
    bound = Bound(0.5)
    assert bound.is_kept_by(measured(*[0.1] * 19, 9.0))
    assert not bound.is_kept_by(measured(*[0.1] * 18, 9.0, 9.0))
    assert bound.is_kept_by(measured(*[0.1] * 19, errors=Counter(UNAVAILABLE=1)))
    assert not bound.is_kept_by(measured(*[0.1] * 18, errors=Counter(UNAVAILABLE=1), unanswered=1))
    assert not bound.is_kept_by(measured())


@pytest.mark.parametrize("requests", [1, 19, 20, 21, 399, 400])
def test_what_may_be_late_is_what_the_bound_lets_be(requests: int):
    bound = Bound(0.5)
    allowed = bound.late_allowed(requests)
    assert bound.is_kept_by(measured(*[0.1] * (requests - allowed), *[9.0] * allowed))
    assert not bound.is_kept_by(measured(*[0.1] * (requests - allowed - 1), *[9.0] * (allowed + 1)))


def test_the_window_is_what_is_measured():
    window = Window(10.0, 14.0)
    assert [at in window for at in (9.9, 10.0, 13.9, 14.0)] == [False, True, True, False]
    assert [window.passed(now) for now in (9.0, 12.5, 20.0)] == [0.0, 2.5, 4.0]


def test_tokens_are_those_of_all_hypotheses():
    hypothesis = pb.Hypothesis(tokens=["a", "b", "</s>"])
    translation = pb.Translation(hypotheses=[hypothesis, hypothesis])
    assert tokens_of(pb.TranslateResponse(translations=[translation, translation]).SerializeToString()) == 12
