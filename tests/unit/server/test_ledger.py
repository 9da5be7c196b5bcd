"""Who gets which sentence, and when a request has ended."""

import pytest

from translane_server.errors import CancelledError, EngineError, UnavailableError
from translane_server.job import PendingRequest
from translane_server.ledger import Ledger
from translane_server.options import DecodingOptions
from translane_server.request import FinishReason, Hypothesis, Request, Sentence

FOUND = (Hypothesis((5,), None, FinishReason.END_OF_SENTENCE),)


class Accepted:
    """A request of `sentences` sentences, and what it was answered."""

    def __init__(self, ledger, sentences, beam_size=1, priority=0):
        options = DecodingOptions(9, beam_size=beam_size)
        self.answers = []
        self.request = Request([Sentence([7, 3], options)] * sentences, self.answers.append, priority)
        ledger.accept(PendingRequest(self.request, 0.0))


def make_ledger():
    return Ledger(encode_tokens=1000)


def finish(ledger, *jobs):
    for job in jobs:
        job.admitted_at, job.encoded_at = 1.0, 3.0
    ledger.finish([(job, FOUND) for job in jobs], now=6.0)


def test_the_worker_takes_all_it_has_rows_for():
    ledger = make_ledger()
    Accepted(ledger, 5)
    assert len(ledger.admit(rows=4, reserved=1)) == 3
    Accepted(ledger, 1, beam_size=4)
    assert len(ledger.admit(rows=4, reserved=1)) == 2
    assert ledger.admit(rows=4, reserved=1) == []
    assert len(ledger.admit(rows=4, reserved=0)) == 1


def test_a_request_is_answered_with_its_last_sentence():
    ledger = make_ledger()
    call = Accepted(ledger, 4)
    first, second = ledger.admit(rows=2, reserved=0), ledger.admit(rows=2, reserved=0)
    finish(ledger, *first)
    finish(ledger, second[0])
    assert call.answers == []
    finish(ledger, second[1])
    assert call.answers == [((FOUND, (1.0, 2.0, 3.0)),) * 4]


def test_a_cancelled_request_ends_when_its_last_sentence_is_dropped():
    ledger = make_ledger()
    call, other = Accepted(ledger, 6), Accepted(ledger, 1, priority=1)
    (stays,) = ledger.admit(rows=1, reserved=0)
    first, second = ledger.admit(rows=2, reserved=0), ledger.admit(rows=2, reserved=0)
    ledger.cancel(call.request)
    ledger.cancel(call.request)
    assert ledger.waiting == 0
    assert ledger.cancellations == 1
    assert ledger.wait(busy=True)
    assert ledger.drop_cancelled([stays, *first]) == first
    finish(ledger, second[0])
    assert call.answers == []
    assert ledger.drop_cancelled(second[1:]) == second[1:]
    assert [type(answer) for answer in call.answers] == [CancelledError]
    ledger.cancel(call.request)  # it has ended
    assert ledger.cancellations == 1
    assert other.answers == []


def test_a_cancelled_request_that_only_waits_is_answered_before_the_next_step():
    ledger = make_ledger()
    call = Accepted(ledger, 2)
    ledger.cancel(call.request)
    assert call.answers == [], "it is for the worker to answer"
    assert ledger.wait(busy=False)
    assert ledger.wait(busy=True)
    assert [type(answer) for answer in call.answers] == [CancelledError]
    assert ledger.admit(rows=8, reserved=0) == []


@pytest.mark.parametrize(("failure", "answer"), [(RuntimeError(), EngineError), (None, UnavailableError)])
def test_what_is_left_is_answered_when_the_worker_leaves(failure, answer):
    ledger = make_ledger()
    waiting, gone = Accepted(ledger, 2), Accepted(ledger, 1)
    ledger.cancel(gone.request)
    ledger.leave(failure)
    assert [type(each) for each in gone.answers + waiting.answers] == [CancelledError, answer]
    assert not ledger.wait(busy=True)
    assert not ledger.wait(busy=False)
    assert ledger.failed is failure
    assert ledger.waiting == 0
    with pytest.raises(answer):
        Accepted(ledger, 1)


def test_nothing_is_accepted_once_it_stops():
    ledger = make_ledger()
    ledger.stop()
    with pytest.raises(UnavailableError):
        Accepted(ledger, 1)
