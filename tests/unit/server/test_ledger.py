"""Who gets which sentence, and when a request has ended."""

import pytest

from translane_server.errors import UnavailableError
from translane_server.job import PendingRequest
from translane_server.ledger import Ledger
from translane_server.options import DecodingOptions
from translane_server.request import Request, Sentence, SentenceResult, Timing

RESULT = SentenceResult((), Timing(0, 0, 0))


def accept(ledger, sentences, beam_size=1, priority=0):
    options = DecodingOptions(9, beam_size=beam_size)
    pending = PendingRequest(Request([Sentence([7, 3], options)] * sentences, lambda result: None, priority), 0.0)
    ledger.accept(pending)
    return pending


def make_ledger():
    return Ledger(encode_tokens=1000)


def test_the_worker_takes_all_it_has_rows_for():
    ledger = make_ledger()
    accept(ledger, 5)
    assert len(ledger.admit(rows=4, reserved=1)) == 3
    accept(ledger, 1, beam_size=4)
    assert len(ledger.admit(rows=4, reserved=1)) == 2
    assert ledger.admit(rows=4, reserved=1) == []
    assert len(ledger.admit(rows=4, reserved=0)) == 1


def test_a_request_ends_with_its_last_sentence():
    ledger = make_ledger()
    pending = accept(ledger, 4)
    first, second = ledger.admit(rows=2, reserved=0), ledger.admit(rows=2, reserved=0)
    assert ledger.finish([(job, RESULT) for job in first]) == []
    assert ledger.finish([(second[0], RESULT)]) == []
    assert ledger.finish([(second[1], RESULT)]) == [pending]
    assert pending.results == [RESULT] * 4


def test_a_cancelled_request_ends_when_its_last_sentence_is_dropped():
    ledger = make_ledger()
    pending = accept(ledger, 6)
    first, second = ledger.admit(rows=2, reserved=0), ledger.admit(rows=2, reserved=0)
    ledger.cancel(pending.request)
    ledger.cancel(pending.request)
    assert ledger.waiting == 0
    assert ledger.cancellations == 1
    assert ledger.cancelled() == []
    assert ledger.drop(first) == []
    assert ledger.finish([(second[0], RESULT)]) == []
    assert ledger.drop(second[1:]) == [pending]
    ledger.cancel(pending.request)  # it has ended
    assert ledger.cancellations == 1


def test_a_cancelled_request_that_only_waits_ends_at_once():
    ledger = make_ledger()
    pending = accept(ledger, 2)
    ledger.cancel(pending.request)
    assert ledger.cancelled() == [pending]
    assert ledger.cancelled() == []
    assert ledger.admit(rows=8, reserved=0) == []


def test_what_is_left_goes_to_the_worker_that_leaves():
    ledger = make_ledger()
    failure = RuntimeError()
    waiting, gone = accept(ledger, 2), accept(ledger, 1)
    ledger.cancel(gone.request)
    assert ledger.leave(failure) == [gone, waiting]
    assert not ledger.wait(busy=True)
    assert not ledger.wait(busy=False)
    assert ledger.failed is failure
    assert ledger.waiting == 0


def test_nothing_is_accepted_once_it_stops():
    ledger = make_ledger()
    ledger.stop()
    with pytest.raises(UnavailableError):
        accept(ledger, 1)
