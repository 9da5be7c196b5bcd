"""An engine on several backends: who decodes what, and that it is one engine to its callers."""

import contextlib
import random
import threading

import pytest

from fakes.backend import VOCABULARY, FakeBackend
from fakes.calls import TIMEOUT, Call, call_from_many_threads, wait_until
from translane_server.engine import Engine
from translane_server.errors import CancelledError, EngineError, QueueFullError, UnavailableError
from translane_server.options import DecodingOptions
from translane_server.request import Request, Sentence

LONG = [20] * 20


@pytest.fixture
def backends():
    return [FakeBackend(rows=8), FakeBackend(rows=8)]


@pytest.fixture
def engine(backends):
    engine = Engine(*backends, vocabulary=VOCABULARY, waiting_limit=100, encode_tokens=1000)
    yield engine
    release(backends)
    engine.stop()
    assert all(backend.closed for backend in backends)


def hold(backends):
    for backend in backends:
        backend.hold()


def release(backends):
    for backend in backends:
        if backend.gate is not None:
            backend.release()


def encoded(backend):
    return sum(number for what, number, *_ in backend.log if what == "encode")


def wait_for_steps(backends):
    """Until every backend is in a step."""
    for backend in backends:
        assert backend.step_started.acquire(timeout=TIMEOUT)


def test_a_request_is_spread_evenly(engine, backends):
    hold(backends)
    call = Call(engine, *([n] * 9 for n in range(10, 20)))
    engine.start()
    wait_for_steps(backends)
    assert [encoded(backend) for backend in backends] == [5, 5]
    assert engine.active_rows == 10
    assert engine.rows == 16
    release(backends)
    assert call.tokens() == call.expected()


def test_a_newcomer_joins_whoever_has_fewer_rows(engine, backends):
    hold(backends)
    engine.start()
    first = Call(engine, LONG)
    wait_until(lambda: engine.active_rows == 1)
    (busy,) = (backend for backend in backends if backend.log)
    (idle,) = (backend for backend in backends if not backend.log)
    second = Call(engine, LONG)
    assert idle.step_started.acquire(timeout=TIMEOUT)
    assert [encoded(backend) for backend in backends] == [1, 1]
    third = Call(engine, LONG)
    busy.release(1)
    wait_until(lambda: engine.waiting == 0)
    fourth = Call(engine, LONG)
    busy.release(1)  # it has two rows now, and the other one
    assert busy.step_started.acquire(timeout=TIMEOUT)
    assert busy.step_started.acquire(timeout=TIMEOUT)
    assert engine.waiting == 1
    idle.release(1)
    wait_until(lambda: engine.waiting == 0)
    assert [encoded(backend) for backend in backends] == [2, 2]
    release(backends)
    for call in (first, second, third, fourth):
        assert call.tokens() == call.expected()


def test_the_other_goes_on_while_one_is_in_a_step(engine, backends):
    hold(backends)
    engine.start()
    calls = [Call(engine, LONG) for _ in range(2)]
    wait_for_steps(backends)
    backends[1].release()
    wait_until(lambda: engine.active_rows == 1)
    assert backends[0].step_rows == []
    backends[0].release()
    for call in calls:
        assert call.tokens() == call.expected()


def test_no_more_sentences_than_rows_and_all_find_some(engine, backends):
    calls = [Call(engine, *([n] * (n % 7) for n in range(start, start + 12))) for start in range(10, 100, 12)]
    engine.start()
    for call in calls:
        assert call.tokens() == call.expected()
    assert [max(backend.step_rows) for backend in backends] == [8, 8]
    assert engine.waiting == engine.active_rows == 0


def test_a_request_that_is_spread_is_cancelled_everywhere_and_answered_once(engine, backends):
    hold(backends)
    gone = Call(engine, *[LONG] * 20)  # eight in each backend, and four wait
    engine.start()
    wait_for_steps(backends)
    stays = Call(engine, [40, 41], [50, 51])
    engine.cancel(gone.request)
    engine.cancel(gone.request)
    assert engine.waiting == 2
    backends[0].release(1)
    wait_until(lambda: engine.active_rows == 8 + 2)
    assert gone.answers.empty(), "one backend still decodes it"
    release(backends)
    with pytest.raises(CancelledError):
        gone.result()
    assert stays.tokens() == stays.expected()
    for backend in backends:
        assert all(rows <= 2 for rows in backend.step_rows[1:])


def test_cancelling_what_no_backend_has_wakes_one_to_answer(engine, backends):
    hold(backends)
    running = Call(engine, *[LONG] * 16)
    engine.start()
    wait_for_steps(backends)
    waiting = Call(engine, [50], [51])
    engine.cancel(waiting.request)
    assert engine.waiting == 0
    release(backends[:1])
    with pytest.raises(CancelledError):
        waiting.result()
    release(backends)
    assert running.tokens() == running.expected()


def test_a_failure_of_one_ends_all(engine, backends, caplog):
    backends[1].fail_at_step = 3
    backends[0].hold()
    calls = [Call(engine, *[LONG] * 4) for _ in range(3)]
    engine.start()
    assert backends[0].step_started.acquire(timeout=TIMEOUT)
    wait_until(lambda: engine.failed is not None)
    with pytest.raises(EngineError):
        Call(engine, [1])
    assert all(call.answers.empty() for call in calls), "one backend still decodes them"
    release(backends)
    for call in calls:
        with pytest.raises(EngineError, match="restart"):
            call.result()
    engine.stop()
    assert isinstance(engine.failed, RuntimeError)
    assert [str(record.exc_info[1]) for record in caplog.records] == ["the device fell off the bus"]
    assert engine.active_rows == engine.waiting == 0


def test_a_failure_wakes_those_that_sleep(engine, backends):
    for backend in backends:
        backend.fail_at_step = 0
    engine.start()
    with pytest.raises(EngineError):
        Call(engine, [1]).result()
    wait_until(lambda: all(backend.closed for backend in backends))


def test_stopping_answers_what_is_left(engine, backends):
    hold(backends)
    calls = [Call(engine, *[LONG] * 3) for _ in range(8)]
    engine.start()
    wait_for_steps(backends)
    stopper = threading.Thread(target=engine.stop)
    stopper.start()
    wait_until(lambda: engine._ledger.stopping)
    release(backends)
    stopper.join(TIMEOUT)
    for call in calls:
        with pytest.raises(UnavailableError):
            call.result()


def test_draining_waits_for_all(engine, backends):
    hold(backends)
    calls = [Call(engine, LONG) for _ in range(20)]
    engine.start()
    assert engine.drain(0.01) is False
    release(backends[:1])
    assert engine.drain(0.1) is False
    with pytest.raises(UnavailableError):
        Call(engine, [1])
    release(backends)
    assert engine.drain(TIMEOUT)
    for call in calls:
        assert call.tokens() == call.expected()


def test_the_limit_of_waiting_sentences_is_everyones(backends):
    engine = Engine(*backends, vocabulary=VOCABULARY, waiting_limit=3, encode_tokens=1000)
    hold(backends)
    engine.start()
    calls = []
    for _ in range(16):
        calls.append(Call(engine, LONG))
        release_one_step(backends)
        wait_until(lambda: engine.waiting == 0)
    waiting = Call(engine, [10], [11], [12])
    with pytest.raises(QueueFullError):
        Call(engine, [13])
    release(backends)
    assert waiting.tokens() == waiting.expected()
    engine.stop()


def release_one_step(backends):
    for backend in backends:
        backend.release(1)


def test_a_sentence_fits_where_the_smallest_backend_has_rows_for_it(backends):
    engine = Engine(backends[0], FakeBackend(rows=3), vocabulary=VOCABULARY, waiting_limit=8, encode_tokens=1000)
    options = DecodingOptions(8, beam_size=4)
    with pytest.raises(AssertionError, match="more beams or hypotheses than rows"):
        engine.submit(Request([Sentence([1, 3], options)], lambda result: None))


def test_idle_backends_run_no_steps(engine, backends):
    engine.start()
    for _ in range(10):
        Call(engine, [1]).result()
    steps = [len(backend.log) for backend in backends]
    threading.Event().wait(0.05)
    assert [len(backend.log) for backend in backends] == steps


def test_progress_is_never_told_after_the_answer(engine, backends):
    """A sentence of a request may be ahead in one backend when another one ends or gives up the rest."""
    rng = random.Random(0)
    late, done = [], {}

    def request(number, sources):
        def on_progress(*_):
            if number in done:
                late.append(number)

        sentences = [Sentence([*source, 3], DecodingOptions(32), on_progress=on_progress) for source in sources]
        return Request(sentences, lambda outcome: done.setdefault(number, outcome))

    requests = [request(number, [[9] * rng.randrange(1, 20) for _ in range(4)]) for number in range(60)]
    engine.start()
    for number, each in enumerate(requests):
        with contextlib.suppress(QueueFullError):
            engine.submit(each)
        if rng.random() < 0.5:
            engine.cancel(requests[rng.randrange(number + 1)])
    assert engine.drain(TIMEOUT)
    assert late == []
    assert any(isinstance(outcome, tuple) for outcome in done.values())


def test_many_threads_submit_and_cancel_and_every_request_is_answered_once(engine):
    engine.start()
    mistakes = call_from_many_threads(engine, threads=6, calls=60, most_sources=8, priorities=3)
    assert mistakes == []
    assert engine.drain(TIMEOUT)
    assert engine.active_rows == engine.waiting == 0
