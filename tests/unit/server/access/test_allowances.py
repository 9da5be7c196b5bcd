import pytest

from translane_server.access.allowances import Allowance
from translane_server.access.keys import KeyHolder
from translane_server.core.errors import InvalidRequestError, SentenceRateError, TooManySentencesError
from translane_server.observation.metrics import Metrics


@pytest.fixture
def allowance_of(clock):
    return lambda holder: Allowance("a", holder, Metrics(), "", clock)


def test_sentences_in_flight_are_limited_until_they_are_given_back(allowance_of):
    allowance = allowance_of(KeyHolder(sentences_in_flight=10))
    allowance.take(4)
    allowance.take(6)
    with pytest.raises(TooManySentencesError, match="10 sentences of this key are in flight, 1 more would exceed"):
        allowance.take(1)
    allowance.give_back(4)
    allowance.take(4)
    assert allowance.in_flight == 10


def test_a_request_that_never_fits_is_not_to_be_tried_again(allowance_of):
    allowance = allowance_of(KeyHolder(sentences_in_flight=10))
    with pytest.raises(InvalidRequestError, match="has 11 sentences, and its key may have 10 in flight"):
        allowance.take(11)
    allowance.take(8)
    with pytest.raises(InvalidRequestError, match="has 12 sentences"):
        allowance.take(4, of_call=8)
    assert allowance.in_flight == 8


def test_over_a_minute_the_rate_holds_whatever_the_sizes(clock, allowance_of):
    allowance = allowance_of(KeyHolder(sentences_per_second=10))
    taken, waits = 0, []
    for step in range(6000):
        clock.now = 100 + step / 100
        size = 1 + step % 7
        try:
            allowance.take(size)
        except SentenceRateError as error:
            waits.append(error.retry_after)
        else:
            taken += size
    assert 600 <= taken <= 600 + 10 + 7
    assert min(waits) > 0
    assert max(waits) <= 1


def test_the_suggested_wait_is_exact(clock, allowance_of):
    allowance = allowance_of(KeyHolder(sentences_per_second=10))
    allowance.take(30)  # the ten of the bucket, and a debt of twenty
    with pytest.raises(SentenceRateError) as caught:
        allowance.take(1)
    assert caught.value.retry_after == pytest.approx(2.1)
    clock.now += 2.09
    with pytest.raises(SentenceRateError):
        allowance.take(1)
    clock.now += 0.011
    allowance.take(1)


def test_a_slow_rate_accepts_one_sentence_at_a_time(clock, allowance_of):
    allowance = allowance_of(KeyHolder(sentences_per_second=0.01))
    allowance.take(1)
    with pytest.raises(SentenceRateError) as caught:
        allowance.take(1)
    assert caught.value.retry_after == 60
    clock.now += 100.001
    allowance.take(1)


def test_the_rest_of_an_accepted_call_is_not_refused_for_the_rate(allowance_of):
    allowance = allowance_of(KeyHolder(sentences_per_second=1))
    allowance.take(1)
    allowance.take(5, of_call=1)
    with pytest.raises(SentenceRateError) as caught:
        allowance.take(1)
    assert caught.value.retry_after == pytest.approx(6)
