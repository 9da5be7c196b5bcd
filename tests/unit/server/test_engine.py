"""The engine on a backend without a model: who is in the batch when, and that nothing is lost."""

import contextlib
import queue
import threading
import time

import pytest

from fakes.backend import EOS, VOCABULARY, FakeBackend
from fakes.calls import TIMEOUT, Call, call_from_many_threads, wait_until
from translane_server.engine import Engine
from translane_server.errors import CancelledError, EngineError, UnavailableError
from translane_server.options import DecodingOptions
from translane_server.request import FinishReason, Request, Sentence


@pytest.fixture
def backend():
    return FakeBackend(rows=4)


@pytest.fixture
def make_engine(backend):
    engines = []

    def make(**options):
        options = {"encode_tokens": 1000, **options}
        engine = Engine(backend, vocabulary=VOCABULARY, **options)
        engines.append(engine)
        return engine

    yield make
    for engine in engines:
        if backend.gate is not None:
            backend.release()
        engine.stop()
        assert backend.closed


@pytest.fixture
def engine(make_engine):
    engine = make_engine()
    engine.start()
    return engine


def test_decodes_a_sentence(engine):
    (result,) = Call(engine, [10, 11]).result()
    (hypothesis,) = result.hypotheses
    assert hypothesis.token_ids == (1010, 1011)
    assert hypothesis.score == -(1 + 2 + 3) / 8
    assert hypothesis.finish_reason is FinishReason.END_OF_SENTENCE
    assert min(result.timing.queue, result.timing.encode, result.timing.decode) >= 0


def test_results_are_in_the_order_of_the_sentences_whatever_order_they_end_in(engine):
    call = Call(engine, [11, 12, 13, 14, 15], [16], [], [17, 18])
    assert call.tokens() == call.expected()


def test_more_sentences_than_rows(engine):
    call = Call(engine, *([n] * (n % 5) for n in range(10, 40)))
    assert call.tokens() == call.expected()


def test_max_length_ends_a_sentence(engine):
    (result,) = Call(engine, [1, 2, 3, 4], max_length=2).result()
    assert result.hypotheses[0].token_ids == (1001, 1002)
    assert result.hypotheses[0].finish_reason is FinishReason.MAX_LENGTH


def test_a_sentence_joins_rows_that_are_decoding_and_one_that_ends_leaves_at_once(engine, backend):
    backend.hold()
    long = Call(engine, list(range(10, 18)))  # nine steps
    backend.step_started.acquire(timeout=TIMEOUT)
    short = Call(engine, [20, 21])  # three steps
    backend.release(2)
    for _ in range(2):
        backend.step_started.acquire(timeout=TIMEOUT)
    later = Call(engine, [30])  # two steps
    backend.release()
    assert short.tokens() == [[1020, 1021]]
    assert later.tokens() == [[1030]]
    assert long.tokens() == long.expected()
    # Alone; joined by the short one for its three steps; then by the later one for two.
    assert backend.step_rows == [1, 2, 2, 3, 2, 1, 1, 1, 1]


def test_a_row_is_reused_and_rows_stay_compact(engine, backend):
    calls = [Call(engine, [n] * (1 + n % 7)) for n in range(10, 30)]
    for call in calls:
        assert call.tokens() == call.expected()
    assert max(backend.step_rows) == 4  # the fake fails where rows 0 … n-1 are not the active ones


def test_newcomers_are_encoded_together(make_engine, backend):
    engine = make_engine()
    calls = [Call(engine, [n]) for n in range(10, 13)]
    engine.start()
    for call in calls:
        call.result()
    assert backend.log[0] == ("encode", 3)


def test_higher_priority_enters_first(make_engine, backend):
    backend.rows = 1
    engine = make_engine()
    order = queue.SimpleQueue()
    for name, priority in (("low", 0), ("high", 5)):
        on_done = lambda result, name=name: order.put(name)  # noqa: E731
        engine.submit(Request([Sentence([9, EOS], DecodingOptions(8))], on_done, priority))
    engine.start()
    assert [order.get(timeout=TIMEOUT) for _ in range(2)] == ["high", "low"]


def test_cancelling_frees_the_rows_within_one_step(engine, backend):
    backend.hold()
    gone = Call(engine, list(range(10, 20)), list(range(20, 30)))
    stays = Call(engine, [40, 41, 42])
    backend.step_started.acquire(timeout=TIMEOUT)
    wait_until(lambda: engine.waiting == 0 or backend.log)
    engine.cancel(gone.request)
    backend.release()
    with pytest.raises(CancelledError):
        gone.result()
    assert stays.tokens() == stays.expected()
    after_cancel = backend.step_rows[1:]
    assert max(after_cancel) == 1


def test_cancelling_what_waits(engine, backend):
    backend.hold()
    running = Call(engine, *([n] * 3 for n in range(10, 14)))
    backend.step_started.acquire(timeout=TIMEOUT)
    waiting = Call(engine, [50], [51])
    assert engine.waiting == 2
    engine.cancel(waiting.request)
    backend.release()
    with pytest.raises(CancelledError):
        waiting.result()
    assert running.tokens() == running.expected()
    assert engine.waiting == 0
    assert ("encode", 2) not in backend.log


def test_cancelling_at_once_and_cancelling_what_is_done(engine):
    for _ in range(50):
        call = Call(engine, [10, 11, 12])
        engine.cancel(call.request)
        with contextlib.suppress(CancelledError):
            assert call.tokens() == call.expected()
        engine.cancel(call.request)
    after = Call(engine, [4])
    assert after.tokens() == after.expected()


def test_stopping_answers_what_is_left(engine, backend):
    backend.hold()
    calls = [Call(engine, [n] * 20) for n in range(10, 20)]
    backend.step_started.acquire(timeout=TIMEOUT)
    stopper = threading.Thread(target=engine.stop)
    stopper.start()
    wait_until(lambda: engine._ledger.stopping)
    backend.release()
    stopper.join(TIMEOUT)
    for call in calls:
        with pytest.raises(UnavailableError):
            call.result()
    with pytest.raises(UnavailableError):
        Call(engine, [1])


def test_a_failing_backend_answers_every_caller(engine, backend, caplog):
    backend.fail_at_step = 2
    calls = [Call(engine, [n] * 9) for n in range(10, 20)]
    for call in calls:
        with pytest.raises(EngineError, match="restart"):
            call.result()
    assert isinstance(engine.failed, RuntimeError)
    assert "fell off the bus" in caplog.text
    with pytest.raises(EngineError):
        Call(engine, [1])
    engine.stop()
    assert engine.active_rows == engine.waiting == 0


def test_a_failing_callback_harms_nobody_else(engine, caplog):
    def explode(result):
        raise RuntimeError("the caller's bug")

    engine.submit(Request([Sentence([1, EOS], DecodingOptions(8))], explode))
    call = Call(engine, [2])
    assert call.tokens() == call.expected()
    assert "callback failed" in caplog.text


def test_an_idle_engine_runs_no_steps(engine, backend):
    Call(engine, [1]).result()
    steps = len(backend.log)
    time.sleep(0.05)
    assert len(backend.log) == steps


def test_the_observer_hears_of_every_sentence_and_step(make_engine, backend):
    heard = []

    class Observer:
        def encoded(self, seconds, sentences, source_tokens):
            heard.append(("encoded", sentences, source_tokens))

        def admitted(self, queue_seconds):
            heard.append(("admitted",))

        def stepped(self, seconds, rows):
            heard.append(("stepped", rows))

        def moved(self, seconds, rows):
            heard.append(("moved", rows))

        def first_token(self, seconds):
            heard.append(("first_token",))

    engine = make_engine(observer=Observer())
    call = Call(engine, [10], [20, 21])
    engine.start()
    call.result()
    assert heard == [
        ("admitted",),
        ("admitted",),
        ("encoded", 2, 5),
        ("stepped", 2),
        ("first_token",),
        ("first_token",),
        ("stepped", 2),
        ("moved", 1),
        ("stepped", 1),
    ]


def test_many_threads_submit_and_cancel_and_every_request_is_answered_once(engine):
    mistakes = call_from_many_threads(engine, threads=8, calls=100, most_sources=3)
    assert mistakes == []
    assert engine.active_rows == engine.waiting == 0


def test_an_engine_that_fails_in_the_middle_of_a_step_closes_its_backend(make_engine, backend, monkeypatch):
    monkeypatch.setattr("translane_server.batch.running.RunningBatch._remove", lambda *_: 1 / 0)
    engine = make_engine()
    call = Call(engine, [10])
    engine.start()
    with pytest.raises(EngineError):
        call.result()
    wait_until(lambda: backend.closed)
    assert isinstance(engine.failed, ZeroDivisionError)
    assert engine.active_rows == 0
