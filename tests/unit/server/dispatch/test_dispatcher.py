"""Who decodes what, and what becomes of it."""

import pytest

from fakes.backend import EOS
from translane_server.dispatch.dispatcher import Dispatcher
from translane_server.errors import (
    CancelledError,
    EngineError,
    QueueFullError,
    UnavailableError,
)
from translane_server.observer import NullObserver
from translane_server.options import DecodingOptions
from translane_server.replica.seam import Progress, Report
from translane_server.request import FinishReason, Hypothesis, Request, Sentence, SentenceResult, Timing

RESULT = SentenceResult((Hypothesis((1,), 0.0, FinishReason.MAX_LENGTH),), Timing(0, 0, 0))


class ObedientReplica:
    """Holds what it is sent; tests say what becomes of it."""

    def __init__(self, rows=8):
        self.rows = rows
        self.jobs = []
        self.numbers = []
        self.left = []  # numbers of those that have not ended
        self.cancelled = []
        self.stopped = False

    async def start(self, listener):
        self.listener = listener

    def submit(self, number, job):
        self.jobs.append(job)
        self.numbers.append(number)
        self.left.append(number)

    def cancel(self, number):
        self.cancelled.append(number)

    async def stop(self):
        self.stopped = True

    def end(self, *numbers, result=RESULT, **report):
        self.left = [number for number in self.left if number not in numbers]
        self.listener.reported(self, Report(tuple((number, result) for number in numbers), **report))


class Call:
    """A request of `sentences` sentences, and what it was answered."""

    def __init__(self, engine, sentences=1, *, beam_size=1, priority=0, on_progress=None):
        options = DecodingOptions(9, beam_size=beam_size)
        self.answers = []
        sentence = Sentence([7, EOS], options, on_progress=on_progress)
        self.request = Request([sentence] * sentences, self.answers.append, priority)
        engine.submit(self.request)


@pytest.fixture
def replicas():
    return [ObedientReplica(), ObedientReplica()]


@pytest.fixture
async def engine(replicas):
    engine = Dispatcher(replicas, waiting_limit=100, observer=NullObserver())
    await engine.start()
    return engine


def sent(replicas):
    return [len(replica.jobs) for replica in replicas]


async def test_sentences_go_to_whoever_has_the_fewest_rows(engine, replicas):
    Call(engine, 5)
    assert sent(replicas) == [3, 2]
    Call(engine, beam_size=4)
    assert sent(replicas) == [3, 3]
    Call(engine, 2)
    assert sent(replicas) == [5, 3]
    assert engine.active_rows == 11
    assert engine.rows == 16


async def test_a_few_wait_at_a_replica_and_the_rest_here(engine, replicas):
    call = Call(engine, 40)
    assert sent(replicas) == [16, 16], "rows, and as many more"
    assert engine.active_rows == 16
    assert engine.waiting == 24
    replicas[1].end(*replicas[1].numbers[:3])
    assert sent(replicas) == [16, 19]
    assert engine.active_rows == 16
    assert engine.waiting == 21
    while any(replica.left for replica in replicas):
        for replica in replicas:
            replica.end(*replica.left)
    assert call.answers == [(RESULT,) * 40]
    assert engine.waiting == 0


async def test_the_limit_counts_what_waits_here_and_there(replicas):
    engine = Dispatcher(replicas, waiting_limit=6, observer=NullObserver())
    await engine.start()
    Call(engine, 6)
    Call(engine, 6)
    Call(engine, 6)
    assert engine.waiting == 2
    Call(engine, 4)
    with pytest.raises(QueueFullError, match="6 sentences are waiting, 1 more would exceed the limit of 6"):
        Call(engine, 1)
    replicas[0].end(*replicas[0].numbers[:1])
    Call(engine, 1)


async def test_the_wait_of_the_last_sentence_is_suggested_to_who_is_refused(replicas):
    engine = Dispatcher(replicas, waiting_limit=1, observer=NullObserver())
    await engine.start()
    with pytest.raises(QueueFullError) as refused:
        Call(engine, 2)
    assert refused.value.retry_after == 0.1
    replicas[0].end(measurements=(("admitted", 2.5),))
    with pytest.raises(QueueFullError) as refused:
        Call(engine, 2)
    assert refused.value.retry_after == 2.5


async def test_a_higher_priority_is_sent_first(engine, replicas):
    Call(engine, 32)
    Call(engine, 2)
    first = Call(engine, 1, priority=1)
    replicas[0].end(replicas[0].numbers[0])
    assert replicas[0].jobs[-1].priority == 1
    replicas[0].end(replicas[0].numbers[-1])
    assert first.answers == [(RESULT,)]


async def test_more_beams_than_are_free_wait_and_hold_up_who_comes_later(engine, replicas):
    Call(engine, 18)
    Call(engine, beam_size=8)
    Call(engine, 1)
    assert sent(replicas) == [9, 9]
    assert engine.waiting == 4
    replicas[1].end(*replicas[1].numbers[:1])
    assert sent(replicas) == [10, 10], "the beams have room, and then the one behind them"
    assert replicas[1].jobs[-1].sentence.options.beam_size == 8
    assert engine.waiting == 3
    replicas[1].end(*replicas[1].numbers[1:8])
    assert engine.waiting == 3, "the beams wait at the replica: eight rows are to be free"
    replicas[1].end(*replicas[1].numbers[8:9])
    assert engine.waiting == 2


async def test_a_spread_request_is_cancelled_everywhere_and_answered_once(engine, replicas):
    gone = Call(engine, 24)
    tasks = [list(replica.numbers) for replica in replicas]
    stays = Call(engine, 2)
    engine.cancel(gone.request)
    engine.cancel(gone.request)
    assert [replica.cancelled for replica in replicas] == tasks
    assert gone.answers == []
    for replica, numbers in zip(replicas, tasks, strict=True):
        replica.end(*numbers, result=None)
    (answer,) = gone.answers
    assert isinstance(answer, CancelledError)
    assert engine.active_rows == 2
    for replica in replicas:
        replica.end(*replica.left)
    assert stays.answers == [(RESULT,) * 2]
    engine.cancel(gone.request)


async def test_what_was_sent_nowhere_is_cancelled_at_once(engine, replicas):
    Call(engine, 32)
    waiting = Call(engine, 3)
    engine.cancel(waiting.request)
    assert [type(answer) for answer in waiting.answers] == [CancelledError]
    assert engine.waiting == 16


async def test_what_waits_behind_a_cancelled_request_moves_up(engine, replicas):
    Call(engine, 18)
    beams, behind = Call(engine, beam_size=8), Call(engine)
    assert sent(replicas) == [9, 9], "they have no room, and hold up who comes later"
    engine.cancel(beams.request)
    assert sent(replicas) == [10, 9]
    replicas[0].end(replicas[0].numbers[-1])
    assert behind.answers == [(RESULT,)]


async def test_a_result_that_crosses_its_cancellation(engine, replicas):
    call = Call(engine)
    engine.cancel(call.request)
    replicas[0].end(*replicas[0].numbers)
    assert [type(answer) for answer in call.answers] == [CancelledError]
    assert engine.active_rows == 0


async def test_progress_reaches_who_listens_until_it_is_cancelled(engine, replicas):
    heard = []
    call = Call(engine, on_progress=lambda *news: heard.append(news))
    Call(engine)
    for replica in replicas:
        (number,) = replica.numbers
        replica.end(progress=(Progress(number, (5, 6), ()),))
    engine.cancel(call.request)
    replicas[0].end(progress=(Progress(replicas[0].numbers[0], (5, 6, 7), ()),))
    assert heard == [((5, 6), ())]


async def test_a_lost_replica_ends_all(engine, replicas):
    calls = [Call(engine, 3), Call(engine, 30)]
    engine.lost(replicas[1])
    assert engine.failed.is_set()
    assert [type(answer) for call in calls for answer in call.answers] == [EngineError, EngineError]
    with pytest.raises(EngineError):
        Call(engine)
    replicas[0].end(*replicas[0].numbers)  # it had not heard of it
    assert [len(call.answers) for call in calls] == [1, 1]


async def test_stopping_answers_what_is_left_and_stops_the_replicas(engine, replicas):
    call = Call(engine, 30)
    await engine.stop()
    assert [type(answer) for answer in call.answers] == [UnavailableError]
    assert all(replica.stopped for replica in replicas)
    with pytest.raises(UnavailableError):
        Call(engine)


async def test_a_callback_that_fails_is_its_own_problem(engine, replicas, caplog):
    def broken(outcome):
        raise ValueError("broken")

    engine.submit(Request([Sentence([7, EOS], DecodingOptions(9))], broken))
    other = Call(engine)
    for replica in replicas:
        replica.end(*replica.numbers)
    assert other.answers == [(RESULT,)]
    assert caplog.messages == ["a request's callback failed"]


class Observer:
    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        return lambda *values: self.calls.append((name, values))


async def test_the_observer_is_told_what_replicas_measure(replicas):
    observer = Observer()
    engine = Dispatcher(replicas, waiting_limit=9, observer=observer)
    await engine.start()
    replicas[0].end(measurements=(("stepped", 0.5, 3), ("admitted", 0.25)))
    assert observer.calls == [("stepped", (0.5, 3)), ("admitted", (0.25,))]
