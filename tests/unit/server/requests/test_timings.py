"""The times of an answer."""

import pytest

from translane_server.requests.timings import add_times, keep_slowest, set_total, timing
from translane_server.sentence import SentenceResult, Timing


def results(*timings):
    return [SentenceResult((), Timing(*each)) for each in timings]


@pytest.mark.parametrize("seconds", [0.0, 1e-9, 0.123456789, 0.9999999999, 1.0, 59.5, 86400.25])
def test_durations_are_told_to_the_nanosecond(seconds):
    message = timing(results((seconds, seconds, seconds)), seconds)
    for duration in (message.queue, message.encode, message.decode, message.total):
        assert duration.ToNanoseconds() == round(seconds * 1e9)
        assert 0 <= duration.nanos < 1_000_000_000


def test_each_phase_is_the_slowest_sentences():
    message = timing(results((1.0, 0.25, 0.5), (0.5, 2.0, 0.125)), 3.0)
    assert [each.ToMilliseconds() for each in (message.queue, message.encode, message.decode)] == [1000, 2000, 500]


def test_phases_that_took_no_time_are_told():
    message = timing([], 0.0)
    assert {field.name for field, _ in message.ListFields()} == {"queue", "encode", "decode", "total"}


def milliseconds(message):
    return [each.ToMilliseconds() for each in (message.queue, message.encode, message.decode, message.total)]


def test_parts_at_the_same_time_take_as_long_as_the_slowest():
    message = timing(results((1.0, 0.25, 0.5)), 3.0)
    keep_slowest(message, timing(results((0.5, 2.0, 0.5)), 9.0))
    assert milliseconds(message) == [1000, 2000, 500, 3000]
    set_total(message, 0.125)
    assert milliseconds(message) == [1000, 2000, 500, 125]


def test_steps_one_after_the_other_take_their_times_together():
    message = timing(results((1.0, 0.25, 0.5)), 3.0)
    add_times(message, timing(results((0.5, 2.0, 0.999999999)), 9.0))
    assert milliseconds(message) == [1500, 2250, 1499, 12000]
    assert message.decode.nanos == 499_999_999


def test_cached_texts_of_parts_add_up_and_those_of_steps_are_the_last_ones():
    message = timing([], 0.0, 2)
    keep_slowest(message, timing([], 0.0, 3))
    assert message.cached_texts == 5
    add_times(message, timing([], 0.0, 4))
    assert message.cached_texts == 5
