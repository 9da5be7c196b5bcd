"""A worker on a backend without a model, on the test's own thread: who is encoded when, and who enters."""

import itertools

import pytest

from fakes.backend import EOS, OFFSET, VOCABULARY, FakeBackend
from fakes.language_model import RandomBackend, RandomModel
from translane_server.errors import CancelledError
from translane_server.job import PendingRequest
from translane_server.ledger import Ledger
from translane_server.observer import NullObserver
from translane_server.options import DecodingOptions
from translane_server.request import Request, Sentence
from translane_server.worker import Worker

MODEL = RandomModel()


class Calls:
    """Sentences that are decoded by `run`, which returns when all are answered.

    `at_step[n]` is called before the n-th step of the decoder.
    """

    def __init__(self, rows):
        self.backend = FakeBackend(rows)
        self.ledger = Ledger(encode_tokens=1000)
        self.clock = itertools.count().__next__
        self.worker = Worker("worker", self.backend, self.ledger, VOCABULARY, NullObserver(), self.clock)
        self.results = {}
        self.order = []
        self.at_step = {}
        self.requests = {}
        step = self.backend.decode_step

        def step_after_call(*arguments):
            self.at_step.get(len(self.backend.step_rows), lambda: None)()
            return step(*arguments)

        self.backend.decode_step = step_after_call

    def submit(self, token, length, priority=0, **options):
        def on_done(result):
            self.results[token] = result
            self.order.append(token)
            if len(self.results) == len(self.requests):
                self.ledger.stop()

        sentence = Sentence([token] * length + [EOS], DecodingOptions(20, **options))
        self.requests[token] = Request([sentence], on_done, priority)
        self.ledger.accept(PendingRequest(self.requests[token], self.clock()))

    def cancel(self, token):
        self.ledger.cancel(self.requests[token])

    def run(self):
        self.worker.run()
        assert self.worker.active_rows == 0
        for token, result in self.results.items():
            if not isinstance(result, Exception):
                (ids,) = {hypothesis.token_ids for hypothesis in result[0].hypotheses}
                assert ids == (token + OFFSET,) * len(ids)

    @property
    def encoded(self):
        return [entry[1] for entry in self.backend.log if entry[0] == "encode"]


def test_sentences_that_wait_are_encoded_for_the_free_rows_and_as_many_more_as_there_are_rows():
    calls = Calls(rows=4)
    for token in range(10, 26):
        calls.submit(token, length=3)
    calls.run()
    assert calls.encoded == [8, 8]
    assert calls.backend.step_rows == [4] * 16
    assert len(calls.results) == 16


def test_whoever_is_encoded_enters_as_soon_as_there_is_a_row_and_nothing_is_moved_for_that():
    calls = Calls(rows=4)
    for token, length in ((10, 1), (11, 6), (12, 2), (13, 6), (14, 4), (15, 3)):
        calls.submit(token, length)
    calls.run()
    # The last two enter after the second and the third step, so that all others end with the seventh.
    assert calls.backend.log == [("encode", 6), *[("step", 4)] * 7]


def test_a_lone_sentence_is_encoded_at_once():
    calls = Calls(rows=4)
    calls.submit(10, length=4)
    calls.at_step[2] = lambda: calls.submit(11, length=1)
    calls.run()
    assert calls.encoded == [1, 1]
    assert calls.backend.step_rows == [1, 1, 1, 2, 2]


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_what_is_too_much_to_encode_at_once_is_encoded_later(limit):
    calls = Calls(rows=4)
    calls.backend.encode_limit = limit
    for token in range(10, 20):
        calls.submit(token, length=2)
    calls.run()
    assert max(calls.encoded) == limit
    assert sum(calls.encoded) == 10
    assert max(calls.backend.step_rows) == 4


def test_what_is_cancelled_after_it_was_encoded_gets_no_row():
    calls = Calls(rows=2)
    for token, length in ((10, 3), (11, 8), (12, 3), (13, 2)):
        calls.submit(token, length)
    calls.at_step[1] = lambda: calls.cancel(12)
    calls.run()
    assert calls.encoded == [4]
    assert isinstance(calls.results[12], CancelledError)
    assert set(calls.order) == {10, 11, 12, 13}


def test_cancelling_one_of_those_that_are_encoded_keeps_the_others_apart():
    calls = Calls(rows=4)
    for token in range(10, 16):
        calls.submit(token, length=3)
    calls.at_step[1] = lambda: calls.cancel(14)
    calls.run()
    assert calls.encoded == [6]
    assert calls.results[15][0].hypotheses[0].token_ids == (15 + OFFSET,) * 3


def test_the_phases_add_up_to_the_whole_time():
    calls = Calls(rows=2)
    for token in range(10, 14):
        calls.submit(token, length=3)
    submitted = {token: number for number, token in enumerate(range(10, 14))}
    calls.run()
    totals = []
    for token, result in calls.results.items():
        timing = result[0].timing
        assert min(timing.queue, timing.encode, timing.decode) > 0
        totals.append(submitted[token] + timing.queue + timing.encode + timing.decode)
    assert totals == sorted(totals)
    assert totals[0] == totals[1] < totals[2]


def test_sentences_of_several_rows_are_encoded_ahead_and_wait_for_room():
    backend, ledger = RandomBackend(MODEL, rows=4), Ledger(encode_tokens=1000)
    encode, encoded, results = backend.encode_ahead, [], []
    backend.encode_ahead = lambda sources: encoded.append(len(sources)) or encode(sources)

    def on_done(result):
        results.append(result)
        if len(results) == 8:
            ledger.stop()

    for token in range(2, 10):
        sentence = Sentence([token, 1], DecodingOptions(6, beam_size=2))
        ledger.accept(PendingRequest(Request([sentence], on_done), 0.0))
    Worker("worker", backend, ledger, MODEL.vocabulary, NullObserver(), float).run()
    assert encoded == [4, 4]  # of two rows each
    assert max(backend.steps) == 4
    assert not any(isinstance(result, Exception) for result in results)


@pytest.mark.parametrize("steps_at_once", [2, 3, 4])
def test_several_steps_at_once_give_every_sentence_what_single_steps_do(steps_at_once):
    """Sentences of all lengths and limits, more than there are rows; now and then beams or a sample is among them."""
    options = [{}, {}, {}, {"beam_size": 2}, {}, {"return_token_scores": True}, {}, {}, {}, {}]

    def decode(at_once):
        backend, ledger = RandomBackend(MODEL, rows=4), Ledger(encode_tokens=1000)
        backend.steps_at_once = at_once
        results = {}
        for number in range(60):
            extra = dict(options[number % len(options)])
            scores = extra.pop("return_token_scores", False)
            sentence = Sentence(
                [2 + number % 30, 2 + number // 30, 1], DecodingOptions(1 + number % 13, scores=scores, **extra)
            )

            def on_done(result, number=number):
                results[number] = result
                if len(results) == 60:
                    ledger.stop()

            ledger.accept(PendingRequest(Request([sentence], on_done), 0.0))
        Worker("worker", backend, ledger, MODEL.vocabulary, NullObserver(), float).run()
        return {number: result[0].hypotheses for number, result in results.items()}, backend

    expected, single = decode(1)
    found, several = decode(steps_at_once)
    assert found == expected
    assert several.calls_ahead > 0
    assert single.calls_ahead == 0


def test_steps_are_taken_one_by_one_while_a_sentence_waits():
    calls = Calls(rows=2)
    calls.backend.steps_at_once = 4
    taken = []
    ahead = calls.backend.decode_ahead
    calls.backend.decode_ahead = lambda *arguments: taken.append(arguments[2]) or ahead(*arguments)
    for token, length in ((10, 9), (11, 3), (12, 9)):
        calls.submit(token, length, scores=False)
    calls.run()
    assert calls.backend.step_rows[:4] == [2] * 4
    assert taken == [4, 4, 4]  # from when the last sentence has a row, which the second one left


def test_a_row_is_never_fed_beyond_its_limit_by_steps_ahead():
    calls = Calls(rows=2)
    calls.backend.steps_at_once = 4
    calls.backend.target_capacity = 20
    taken = []
    ahead = calls.backend.decode_ahead
    calls.backend.decode_ahead = lambda *arguments: (
        taken.append((int(arguments[1].max()), arguments[2])) or ahead(*arguments)
    )
    calls.submit(10, 18, scores=False)
    calls.submit(11, 19, scores=False)
    calls.run()
    assert taken == [(0, 4), (4, 4), (8, 4), (12, 4), (16, 4)]
    assert all(position + steps <= 20 for position, steps in taken)
