"""How much the calls of a holder may ask for."""

from typing import Any

import pytest

from translane_server.access.allowances import Allowance
from translane_server.access.keys import KeyHolder
from translane_server.core.errors import (
    InvalidRequestError,
    RequestError,
    SentenceRateError,
    TooManySentencesError,
)
from translane_server.observation.metrics import Metrics

FULL = (TooManySentencesError, "10 sentences of this key are in flight, 1 more would exceed", 0.5)
RATE = "this key may send "
# Limits, and calls: when one comes [seconds], its sentences (negative: they are given back), how many of the same call
# are counted already, and how it is refused, with the time to wait.
CALLS: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "in flight": (
        {"sentences_in_flight": 10},
        [(0, 4, 0, None), (0, 6, 0, None), (0, 1, 0, FULL), (0, -4, 0, None), (0, 4, 0, None), (0, 1, 0, FULL)],
    ),
    "never": (
        {"sentences_in_flight": 10},
        [
            (0, 11, 0, (InvalidRequestError, "has 11 sentences, and its key may have 10 in flight", None)),
            (0, 8, 0, None),
            (0, 4, 8, (InvalidRequestError, "has 12 sentences", None)),
            (0, 2, 0, None),
        ],
    ),
    "the wait is exact": (  # the ten of the bucket, and a debt of twenty
        {"sentences_per_second": 10},
        [
            (0, 30, 0, None),
            (0, 1, 0, (SentenceRateError, RATE, 2.1)),
            (2.09, 1, 0, (SentenceRateError, RATE, 0.01)),
            (2.101, 1, 0, None),
        ],
    ),
    "a slow rate": (
        {"sentences_per_second": 0.01},
        [(0, 1, 0, None), (0, 1, 0, (SentenceRateError, RATE, 60)), (100.001, 1, 0, None)],
    ),
    "the rest of an accepted call": (
        {"sentences_per_second": 1},
        [(0, 1, 0, None), (0, 5, 1, None), (0, 1, 0, (SentenceRateError, RATE, 6))],
    ),
}


@pytest.mark.parametrize("case", CALLS)
def test_what_is_refused_and_for_how_long(case):
    limits, calls = CALLS[case]
    now = 100.0
    allowance = Allowance("a", KeyHolder(**limits), Metrics(), "", lambda: now)
    for time, sentences, of_call, refusal in calls:
        now = 100.0 + time
        if sentences < 0:
            allowance.give_back(-sentences)
        elif refusal is None:
            allowance.take(sentences, of_call=of_call)
        else:
            kind, problem, wait = refusal
            with pytest.raises(RequestError, match=problem) as caught:
                allowance.take(sentences, of_call=of_call)
            assert type(caught.value) is kind
            assert getattr(caught.value, "retry_after", None) == (wait and pytest.approx(wait, abs=1e-6))


def test_over_a_minute_the_rate_holds_whatever_the_sizes():
    now = 100.0
    allowance = Allowance("a", KeyHolder(sentences_per_second=10), Metrics(), "", lambda: now)
    taken, waits = 0, []
    for step in range(6000):
        now = 100 + step / 100
        size = 1 + step % 7
        try:
            allowance.take(size)
        except SentenceRateError as error:
            waits.append(error.retry_after)
        else:
            taken += size
    assert 600 <= taken <= 600 + 10 + 7
    assert 0 < min(waits) <= max(waits) <= 1
