"""Who decodes what, and what becomes of it."""

import asyncio
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from fakes.backend import EOS
from translane_server.core.errors import EngineError, PoisonedError, QueueFullError, StartupError, UnavailableError
from translane_server.engine.options import DecodingOptions
from translane_server.engine.sequence import (
    CommittedTokens,
    EngineOutput,
    Hypothesis,
    Sentence,
    SentenceResult,
    StepStats,
    Timing,
)
from translane_server.observation.logs import data
from translane_server.workers.dispatcher import Dispatcher
from translane_server.workers.spares import SharedCpus, Spares
from translane_server.workers.worker import State, Worker

RESULT = SentenceResult((Hypothesis((1,), 0.0, False),), Timing(0, 0, 0))


class Outbox:
    """A connection that keeps what is sent."""

    name = "replica"
    facts = data(model="m")

    def __init__(self, rows):
        self.rows = rows
        self.sequences = []
        self.cancelled = []

    async def start(self, on_output, on_loss):
        """Nothing starts."""

    def submit(self, sequence):
        self.sequences.append(sequence)

    def cancel(self, number):
        self.cancelled.append(number)

    async def stop(self):
        """Nothing ends."""


class ObedientWorker(Worker):
    """Holds what it is sent; tests say what becomes of it."""

    is_responsive = True

    def __init__(self, rows=8):
        outbox: Any = Outbox(rows)
        super().__init__(lambda: outbox)
        self.sent = outbox.sequences
        self.cancelled = outbox.cancelled

    @property
    def numbers(self):
        return [sequence.number for sequence in self.sent]

    @property
    def left(self):
        """Numbers of what it has, in the order in which it was sent."""
        return list(self.sequences)

    @property
    def stopped(self):
        return self.state is State.STOPPED

    def report(self, *, ended=(), dropped=(), committed=(), stats=None, failed=(), is_starved=False):
        stats = stats or StepStats([], [], [], [], [])
        output = EngineOutput(ended, dropped, committed, stats, failed, is_starved=is_starved)
        self.received(self.connection, output)

    def fall(self):
        """All that it has is lost, a moment ago."""
        self._enter(State.LOST)
        self._dispatcher.lost(self)

    def lose(self):
        """All that it has is lost."""
        self.fall()
        self._dispatcher._settle()

    def starve(self):
        """It ends for lack of memory."""
        self.report(is_starved=True)
        self.lose()

    def come_back(self):
        self.is_starved = False
        self._enter(State.UP)
        self._dispatcher.changed()

    def fail(self):
        """Nothing starts in its place."""
        if self.state is State.UP:
            self.fall()
        self._enter(State.FAILING)
        self._dispatcher.changed()

    def end(self, *numbers):
        self.report(ended=[(number, RESULT) for number in numbers])

    def drop(self, *numbers):
        self.report(dropped=numbers)


def is_up(worker):
    return worker.state is State.UP


def rests(worker):
    return worker.state is State.RESTING


async def turn():
    """Let whoever waits go on."""
    for _ in range(3):
        await asyncio.sleep(0)


async def call(dispatcher, sentences=1, *, beam_size=1, priority=0, caller="", source=7):
    """The task of a request of `sentences` sentences; it is accepted."""
    sentence = Sentence([source, EOS], DecodingOptions(9, beam_size=beam_size))
    task = asyncio.create_task(dispatcher.decode([sentence] * sentences, priority, caller))
    await turn()
    if task.done():
        await task
    return task


async def give_up(*tasks):
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
def replicas():
    return [ObedientWorker(), ObedientWorker()]


@pytest.fixture
async def engine(replicas):
    engine = Dispatcher(replicas, waiting_limit=100, most_priority=9)
    await engine.start()
    return engine


def sent(replicas):
    return [len(replica.sent) for replica in replicas]


async def test_sentences_go_to_whoever_has_the_fewest_rows(engine, replicas):
    await call(engine, 5)
    assert sent(replicas) == [3, 2]
    await call(engine, beam_size=4)
    assert sent(replicas) == [3, 3]
    await call(engine, 2)
    assert sent(replicas) == [5, 3]
    assert (engine.active_rows, engine.rows) == (11, 16)


async def test_the_first_replica_decodes_a_few_before_another_begins(replicas):
    engine = Dispatcher(replicas, waiting_limit=100, lone_rows=4)
    await engine.start()
    await call(engine, 3)
    assert sent(replicas) == [3, 0]
    await call(engine, beam_size=2)
    assert sent(replicas) == [3, 1], "it would have five rows"
    replicas[0].end(*replicas[0].numbers)
    await call(engine)
    await call(engine)
    assert sent(replicas) == [5, 1], "the one with the fewest rows; the other one is at work"
    replicas[1].end(*replicas[1].numbers)
    await call(engine, 2)
    assert sent(replicas) == [7, 1]
    replicas[0].lose()
    assert sent(replicas)[1] > 1, "the first one is gone"


async def test_a_few_wait_at_a_replica_and_the_rest_here(engine, replicas):
    request = await call(engine, 40)
    assert sent(replicas) == [16, 16], "rows, and as many more"
    assert (engine.active_rows, engine.waiting) == (16, 24)
    replicas[1].end(*replicas[1].numbers[:3])
    assert sent(replicas) == [16, 19]
    assert (engine.active_rows, engine.waiting) == (16, 21)
    while any(replica.left for replica in replicas):
        for replica in replicas:
            replica.end(*replica.left)
    assert await request == (RESULT,) * 40
    assert engine.waiting == 0


async def test_a_caller_who_waits_leaves_places_for_others(replicas):
    engine = Dispatcher(replicas, waiting_limit=32)
    await engine.start()
    await call(engine, 32, caller="a")
    assert engine.waiting == 16, "all at the replicas"
    await call(engine, 4, caller="a")
    with pytest.raises(QueueFullError, match="4 sentences of this caller are waiting, 5 more would leave too few"):
        await call(engine, 5, caller="a")
    await call(engine, 4, caller="a")
    await call(engine, 2, caller="b")
    with pytest.raises(QueueFullError, match="this caller"):
        await call(engine, 3, caller="b")
    await call(engine, 6, caller="c")
    assert engine.waiting == 32


async def test_the_wait_of_the_last_sentence_is_suggested_to_who_is_refused(replicas):
    engine = Dispatcher(replicas, waiting_limit=1)
    await engine.start()
    with pytest.raises(QueueFullError) as refused:
        await call(engine, 2)
    assert refused.value.retry_after == 0.1
    replicas[0].report(stats=StepStats([], [0.5, 2.5], [], [], []))
    with pytest.raises(QueueFullError) as refused:
        await call(engine, 2)
    assert refused.value.retry_after == 2.5


async def test_a_higher_priority_is_sent_first(engine, replicas):
    await call(engine, 32)
    await call(engine, 2)
    first = await call(engine, 1, priority=1)
    replicas[0].end(replicas[0].numbers[0])
    assert replicas[0].sent[-1].priority == 1
    replicas[0].end(replicas[0].numbers[-1])
    assert await first == (RESULT,)


async def test_more_beams_than_are_free_wait_and_hold_up_who_comes_later(engine, replicas):
    await call(engine, 18)
    await call(engine, beam_size=8)
    await call(engine, 1)
    assert sent(replicas) == [9, 9]
    assert engine.waiting == 4
    replicas[1].end(*replicas[1].numbers[:1])
    assert sent(replicas) == [10, 10], "the beams have room, and then the one behind them"
    assert replicas[1].sent[-1].sentence.options.beam_size == 8
    assert engine.waiting == 3
    replicas[1].end(*replicas[1].numbers[1:8])
    assert engine.waiting == 3, "the beams wait at the replica: eight rows are to be free"
    replicas[1].end(*replicas[1].numbers[8:9])
    assert engine.waiting == 2


async def test_a_spread_request_is_given_up_everywhere(engine, replicas):
    gone = await call(engine, 24)
    tasks = [list(replica.numbers) for replica in replicas]
    stays = await call(engine, 2)
    await give_up(gone)
    assert [replica.cancelled for replica in replicas] == tasks
    for replica, numbers in zip(replicas, tasks, strict=True):
        replica.drop(*numbers)
    assert engine.active_rows == 2
    for replica in replicas:
        replica.end(*replica.left)
    assert await stays == (RESULT,) * 2
    assert engine.active_rows == engine.waiting == 0


async def test_what_waits_behind_a_request_that_is_given_up_moves_up(engine, replicas):
    await call(engine, 18)
    beams, behind = await call(engine, beam_size=8), await call(engine)
    assert sent(replicas) == [9, 9], "they have no room, and hold up who comes later"
    await give_up(beams)
    assert sent(replicas) == [10, 9]
    replicas[0].end(replicas[0].numbers[-1])
    assert await behind == (RESULT,)


async def test_a_result_that_crosses_its_cancellation(engine, replicas):
    await give_up(await call(engine))
    replicas[0].end(*replicas[0].numbers)
    assert engine.active_rows == 0


async def streaming(engine, count):
    """A stream of sentences that are accepted, and the task of its first event."""
    stream = engine.stream([Sentence([7, EOS], DecodingOptions(9))] * count)
    first = asyncio.create_task(anext(stream))
    await turn()
    return stream, first


def committed(replica, *token_ids):
    replica.report(committed=[(replica.numbers[0], CommittedTokens(token_ids))])


async def test_a_stream_yields_the_tokens_of_one_sentence_after_the_other(engine, replicas):
    stream, first = await streaming(engine, 2)
    assert [replica.sent[0].streamed for replica in replicas] == [True, True]
    committed(replicas[1], 8)
    committed(replicas[0], 5, 6)
    assert await first == CommittedTokens((5, 6))
    committed(replicas[1], 9)
    replicas[1].end(*replicas[1].numbers)
    replicas[0].end(*replicas[0].numbers)
    assert await anext(stream) == RESULT
    assert await anext(stream) == RESULT, "of a sentence that has ended the tokens are of no use"
    with pytest.raises(StopAsyncIteration):
        await anext(stream)
    assert [replica.cancelled for replica in replicas] == [[], []]


async def test_a_slow_reader_gets_all_tokens_since_the_last_ones(engine, replicas):
    stream, first = await streaming(engine, 1)
    committed(replicas[0], 5)
    assert await first == CommittedTokens((5,))
    for token in (6, 7, 8):
        committed(replicas[0], token)
    assert await anext(stream) == CommittedTokens((6, 7, 8))
    await stream.aclose()
    assert replicas[0].cancelled == replicas[0].numbers


@pytest.mark.parametrize("how", ["stop", "lose"])
async def test_a_slow_reader_gets_what_is_decoded_whatever_ends_then(engine, replicas, how):
    stream, first = await streaming(engine, 2)
    for replica in replicas:
        replica.end(*replica.numbers)
    if how == "stop":
        await engine.stop()
    else:
        for replica in replicas:
            replica.fail()
    assert [await first, await anext(stream)] == [RESULT, RESULT]


async def test_while_all_replicas_fail_calls_are_refused_and_then_decoded_again(engine, replicas):
    calls = [await call(engine, 3), await call(engine, 30)]
    for replica in replicas:
        replica.lose()
        replica.fail()
    assert (engine.is_failing, engine.is_available, engine.waiting) == (True, False, 0)
    assert [type(answer) for answer in await asyncio.gather(*calls, return_exceptions=True)] == [UnavailableError] * 2
    with pytest.raises(UnavailableError):
        await call(engine)
    replicas[1].come_back()
    assert (engine.is_failing, engine.is_available) == (False, True)
    request = await call(engine)
    replicas[1].end(*replicas[1].left)
    assert await request == (RESULT,)


async def test_sentences_of_a_lost_replica_are_decoded_elsewhere_before_others(replicas):
    counted: list[str] = []
    engine = Dispatcher(replicas, waiting_limit=100, count_repeat=lambda: counted.append("repeat"))
    await engine.start()
    request = await call(engine, 20)
    behind = await call(engine, 20)
    had = [each.number for each in replicas[1].sent]
    sent = len(replicas[0].sent)
    replicas[1].lose()
    assert engine.is_available
    assert engine.waiting == 32
    replicas[0].end(*replicas[0].left)
    again = [each.number for each in replicas[0].sent[sent:]]
    assert again == had
    replicas[0].end(*replicas[0].left)
    assert await request == (RESULT,) * 20
    replicas[0].end(*replicas[0].left)
    assert await behind == (RESULT,) * 20
    assert counted == [*["repeat"] * 16]


async def test_of_replicas_that_are_lost_together_no_sentence_is_taken_for_the_reason(engine, replicas):
    request = await call(engine)
    for replica in replicas:
        replica.fall()
    engine._settle()
    for replica in replicas:
        replica.come_back()
    assert sent(replicas) == [2, 0], "it was not sent to the second one, which had ended"
    replicas[0].end(*replicas[0].numbers[-1:])
    assert await request == (RESULT,)


async def test_new_sentences_wait_too_until_a_loss_has_settled(engine, replicas):
    replicas[0].fall()
    request = await call(engine)
    assert sent(replicas) == [0, 0]
    engine._settle()
    assert sent(replicas) == [0, 1]
    replicas[1].end(*replicas[1].numbers)
    assert await request == (RESULT,)


async def test_a_replica_that_may_hang_gets_no_sentence_of_a_lost_one(engine, replicas):
    request = await call(engine)
    replicas[1].is_responsive = False
    replicas[0].lose()
    assert sent(replicas) == [1, 0]
    replicas[1].is_responsive = True
    replicas[1].report()
    assert sent(replicas) == [1, 1]
    replicas[1].end(*replicas[1].numbers)
    assert await request == (RESULT,)


async def test_sentences_wait_until_the_only_replica_returns():
    replica = ObedientWorker()
    changes: list[bool] = []
    engine = Dispatcher([replica], waiting_limit=9)
    engine.availability_changed = lambda: changes.append(engine.is_available)
    await engine.start()
    before = await call(engine, 2)
    replica.lose()
    meanwhile = await call(engine, 2)
    assert not engine.is_available
    assert len(replica.sent) == 2
    replica.come_back()
    assert changes == [False, True]
    while replica.left:
        replica.end(*replica.left)
    assert await before == await meanwhile == (RESULT,) * 2


async def test_a_cancelled_sentence_is_not_decoded_again(engine, replicas):
    request = await call(engine, 2)
    await give_up(request)
    replicas[0].lose()
    assert sent(replicas) == [1, 1]
    assert engine.waiting == 0


async def test_copies_of_a_sentence_that_is_refused_are_refused(engine, replicas):
    copies = [await call(engine, source=8) for _ in range(20)]
    for _ in range(4):
        replicas[0].lose()
        replicas[0].come_back()
    replicas[1].lose()
    assert {type(each) for each in await asyncio.gather(*copies, return_exceptions=True)} == {PoisonedError}


async def test_a_few_that_a_lost_replica_had_just_got_are_tried_alone(engine, replicas):
    old = await call(engine, 2)
    for replica in replicas:
        replica.report()
        replica.report()
    new = [await call(engine, 2), await call(engine)]
    replicas[0].lose()
    assert [len(replica.left) for replica in replicas] == [0, 3], "the old one goes on elsewhere"
    replicas[0].come_back()
    for _ in range(2):
        assert len(replicas[0].left) == 1
        replicas[0].end(*replicas[0].left)
    replicas[1].end(*replicas[1].left)
    await asyncio.gather(old, *new)


async def test_of_sentences_that_fail_together_twice_each_is_tried_alone():
    replica = ObedientWorker(rows=16)
    engine = Dispatcher([replica], waiting_limit=99)
    await engine.start()
    calls = [await call(engine, source=10 + number) for number in range(9)]
    poison = replica.sent[2].number
    for _ in range(2):
        replica.lose()
        replica.come_back()
    later = await call(engine)
    tried = []
    while replica.left:
        (number,) = replica.left
        if number == poison:
            replica.lose()
            replica.come_back()
        else:
            replica.end(number)
        tried.append(number)
    assert tried.count(poison) == 2, "a single loss may be an accident"
    assert sorted(set(tried)) == list(range(10))
    outcomes = await asyncio.gather(*calls, later, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [tuple, tuple, PoisonedError, *[tuple] * 7]


async def test_while_one_replica_decodes_the_suspects_the_other_goes_on(engine, replicas):
    replicas[1].lose()
    suspects = [await call(engine) for _ in range(4)]
    replicas[0].lose()
    replicas[0].come_back()
    replicas[0].lose()
    for replica in replicas:
        replica.come_back()
    others = [await call(engine) for _ in range(4)]
    kept, free = sorted(replicas, key=lambda replica: len(replica.left))
    assert (len(kept.left), len(free.left)) == (1, 4)
    free.end(*free.left)
    await asyncio.gather(*others)
    for _ in range(4):
        assert len(kept.left) == 1
        kept.end(*kept.left)
    await asyncio.gather(*suspects)
    await call(engine, 2)
    assert sorted(len(replica.left) for replica in replicas) == [1, 1], "both decode again"


async def test_a_failed_step_is_repeated_and_the_second_time_refused(engine, replicas, caplog):
    request, fine = await call(engine), await call(engine)
    number = replicas[0].numbers[0]
    replicas[0].report(failed=[number])
    assert replicas[0].left == [number], "again, on the replica with the fewest rows"
    replicas[0].report(failed=[number])
    with pytest.raises(EngineError, match="a sentence of this request cannot be decoded"):
        await request
    assert not engine.is_failing
    replicas[1].end(*replicas[1].numbers)
    assert await fine == (RESULT,)
    assert len(caplog.messages) == 1


async def test_a_lack_of_memory_is_no_sentences_fault(engine, replicas):
    request = await call(engine)
    for failures in range(1, 5):
        assert not request.done(), failures
        (holding,) = [each for each in replicas if each.left]
        holding.starve()
        holding.come_back()
        await turn()
    with pytest.raises(UnavailableError, match="needs more memory than there is at the moment"):
        await request
    again = await call(engine)
    (holding,) = [each for each in replicas if each.left]
    holding.end(*holding.left)
    assert await again == (RESULT,), "it is no poison"


async def test_a_stream_that_starts_again_repeats_nothing(engine, replicas):
    stream, first = await streaming(engine, 1)
    committed(replicas[0], 5, 6)
    assert await first == CommittedTokens((5, 6))
    committed(replicas[0], 7)
    replicas[0].lose()
    assert replicas[1].left == replicas[0].numbers
    event = asyncio.create_task(anext(stream))
    await turn()
    assert await event == CommittedTokens((7,)), "what was certain before"
    event = asyncio.create_task(anext(stream))
    committed(replicas[1], 5)
    committed(replicas[1], 6, 7, 8)
    assert await event == CommittedTokens((8,))
    replicas[1].end(*replicas[1].numbers)
    assert await anext(stream) == RESULT


async def test_a_stream_that_would_go_on_differently_ends(engine, replicas):
    stream, first = await streaming(engine, 1)
    committed(replicas[0], 5, 6)
    await first
    replicas[0].lose()
    event = asyncio.create_task(anext(stream))
    committed(replicas[1], 5, 9)
    with pytest.raises(EngineError, match="differs"):
        await event


async def test_a_caller_whose_sentences_become_longer_than_expected_pays_for_it(replicas):
    (replica, _) = replicas
    dispatcher = Dispatcher([replica], waiting_limit=1000)
    await dispatcher.start()
    sentence = Sentence([7, EOS], DecodingOptions(256))
    long = SentenceResult((Hypothesis((1,) * 256, 0.0, False),), Timing(0, 0, 0))
    calls = [asyncio.create_task(dispatcher.decode([sentence] * 100, caller=caller)) for caller in ("long", "short")]
    await turn()
    owners = {sequence.number: request.caller for request in dispatcher._requests for sequence in request.sequences}
    ended = []
    for _ in range(100):
        ended.append(replica.left[0])
        replica.report(ended=[(ended[-1], long if owners[ended[-1]] == "long" else RESULT)])
    assert [owners[number] for number in ended].count("long") < 25
    for each in calls:
        each.cancel()
    await asyncio.gather(*calls, return_exceptions=True)


async def two_models(cpus=2, spares=1, unused=0.02):
    """For each of two models: its dispatcher, the worker that always runs, and its spare ones; and their clock.

    The clock stands until a test moves it.
    """
    shared, ticks, models = SharedCpus(cpus), SimpleNamespace(now=0.0), []
    for _ in range(2):
        resident, *more = [ObedientWorker() for _ in range(1 + spares)]
        spare = Spares(more, shared, crowded_seconds=1.0, look_seconds=unused, clock=lambda: ticks.now)
        dispatcher = Dispatcher([resident], spares=spare, waiting_limit=1000)
        await dispatcher.start()
        models.append((dispatcher, resident, more))
    return (*models, ticks)


async def test_a_crowded_model_gets_the_cpu_of_an_idle_one_until_that_has_work():
    (hot, resident, [spare]), (other, others, _), ticks = await two_models()
    await call(hot, 2)
    ticks.now = 0.9
    await call(hot)
    assert rests(spare)
    ticks.now = 1.1
    await call(hot)
    assert is_up(spare)
    await call(hot)
    assert sent([resident, spare]) == [4, 1]
    await call(other)
    await call(hot)
    assert sent([resident, spare]) == [5, 1], "both CPUs have work without it"
    others.end(*others.numbers)
    await call(hot)
    assert sent([resident, spare]) == [5, 2]


async def test_no_spare_replica_starts_for_a_burst_or_without_an_idle_cpu():
    (hot, resident, [spare]), (other, _, _), ticks = await two_models()
    await call(hot, 2)
    ticks.now = 0.9
    resident.end(*resident.numbers)
    ticks.now = 5.0
    await call(hot, 2)
    assert rests(spare), "it was not crowded all the time"
    await call(other)
    ticks.now = 9.0
    await call(hot, 2)
    assert rests(spare), "the other model has the other CPU"


async def test_an_unused_spare_replica_rests_and_wakes_again():
    (hot, resident, [spare]), _, ticks = await two_models()
    for _ in range(2):
        await call(hot, 3)
        ticks.now += 2.0
        await call(hot)
        assert is_up(spare)
        request = await call(hot, 3)
        await asyncio.sleep(0.1)
        assert is_up(spare), "it has sentences"
        for worker in (resident, spare):
            worker.end(*worker.left)
        assert await request == (RESULT,) * 3
        await asyncio.sleep(0.1)
        assert rests(spare)
        assert hot.rows == 8
    await hot.stop()
    assert resident.stopped
    assert spare.stopped


@pytest.mark.parametrize("refusal", [StartupError("no memory"), RuntimeError("can't start new thread")], ids=str)
async def test_a_spare_replica_that_does_not_start_is_tried_again(refusal, monkeypatch, caplog):
    (hot, _, [spare]), _, ticks = await two_models()
    with monkeypatch.context() as patch:
        patch.setattr(spare.connection, "start", AsyncMock(side_effect=refusal))
        await call(hot, 2)
        ticks.now = 2.0
        await call(hot)
    assert rests(spare)
    assert caplog.messages == [f"replica would be of use, and does not start: {refusal}"]
    await asyncio.sleep(0.1)
    await call(hot)
    assert is_up(spare)


async def test_sentences_of_a_lost_spare_replica_are_decoded_elsewhere():
    (hot, resident, [spare]), _, ticks = await two_models()
    await call(hot, 3)
    ticks.now = 2.0
    request = await call(hot, 8)
    spare.lose()
    resident.end(*resident.left)
    assert await request == (RESULT,) * 8
    resident.fail()
    assert not hot.is_failing, "the spare one is to come back"
    spare.fail()
    assert hot.is_failing


@pytest.mark.parametrize("seed", range(20))
async def test_whatever_models_do_spare_replicas_get_no_sentence_while_others_need_the_cpus(seed):
    random = Random(seed)
    (*models, ticks) = await two_models(cpus=random.randint(2, 5), spares=random.randint(1, 4), unused=0.001)
    shared = SharedCpus(models[0][0].spares.cpus.count)
    everybody = [worker for _, resident, spares in models for worker in (resident, *spares)]
    shared.join(everybody)
    requests = []
    for _ in range(150):
        ticks.now += random.random()
        dispatcher, resident, spares = random.choice(models)
        before, idle, ends = sent(spares), shared.idle, 0
        if random.random() < 0.5:
            requests.append(await call(dispatcher, random.randint(1, 12)))
        else:
            worker = random.choice([each for each in (resident, *spares) if is_up(each)])
            worker.end(*random.sample(worker.left, random.randint(0, len(worker.left))))
            ends = 1
            await (asyncio.sleep(0.002) if random.random() < 0.1 else turn())
        assert sent(spares) == before or idle + ends >= 0
    while any(worker.left for worker in everybody):
        for worker in everybody:
            if worker.left:
                worker.end(*worker.left)
    await asyncio.gather(*requests)
    assert sum(sent(everybody)) == sum([len(await request) for request in requests])
