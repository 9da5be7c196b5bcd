"""Streams over the engine and a backend without a model; and over an engine that does as it is told."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from fakes.backend import EOS, OFFSET, FakeBackend
from fakes.replicas import fake_replica
from translane_server.dispatch.dispatcher import Dispatcher
from translane_server.errors import EngineError, QueueFullError, UnavailableError
from translane_server.observer import NullObserver
from translane_server.options import DecodingOptions
from translane_server.request import AlignedToken, FinishReason, Hypothesis, Sentence, SentenceResult, Timing
from translane_server.rpc.streaming import StreamedSentence, stream_text


def words(ids, alignment):
    return " ".join(f"{i}" for i in ids)


def sentence(*ids, max_length=32, decode=words):
    return StreamedSentence(Sentence([*ids, EOS], DecodingOptions(max_length)), decode)


def translation(*ids):
    return words([i + OFFSET for i in ids], ())


@pytest.fixture
def run():
    with ThreadPoolExecutor(1) as executor:
        yield lambda function, *arguments: asyncio.get_running_loop().run_in_executor(executor, function, *arguments)


class Reader:
    """Starts a stream, and keeps its deltas. `read` is how many it takes before it waits for `read_on`."""

    def __init__(self, engine, sentences, run, gaps=None, read=1000):
        self.deltas = []
        self.arrived = asyncio.Semaphore(0)
        self.may_read = asyncio.Semaphore(read)
        gaps = gaps or ["", *[" "] * (len(sentences) - 1), *[""] * bool(sentences)]
        self.task = asyncio.create_task(stream_text(engine, sentences, gaps, 0, send=self.send, run=run))

    async def send(self, delta):
        self.deltas.append(delta)
        self.arrived.release()
        await self.may_read.acquire()

    def read_on(self):
        for _ in range(1000):
            self.may_read.release()

    async def text(self):
        end = await self.task
        return "".join(self.deltas) + end.rest


@pytest.fixture
def backend():
    return FakeBackend(rows=4)


@pytest.fixture
async def engine(backend):
    engine = Dispatcher([fake_replica(backend)], waiting_limit=8, observer=NullObserver())
    await engine.start()
    yield engine
    if backend.gate is not None:
        backend.release()
    await engine.stop()


async def until(condition):
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 set by a thread
            await asyncio.sleep(0.001)


async def test_text_is_sent_while_decoding_goes_on(engine, backend, run):
    backend.hold()
    reader = Reader(engine, [sentence(5, 6, 7, 8)], run)
    backend.release(3)
    await reader.arrived.acquire()
    assert translation(5, 6, 7).startswith("".join(reader.deltas))
    assert len(backend.step_rows) <= 3 < 5, "the sentence has not ended"
    assert not reader.task.done()
    backend.release()
    assert await reader.text() == translation(5, 6, 7, 8)


async def test_the_end_has_the_result_and_the_text_of_each_sentence(engine, run):
    reader = Reader(engine, [sentence(5, 6), sentence(7, max_length=1)], run, gaps=["> ", "\n\n", " <"])
    assert await reader.text() == f"> {translation(5, 6)}\n\n{translation(7)} <"
    end = reader.task.result()
    assert end.texts == (translation(5, 6), translation(7))
    assert [result.hypotheses[0].finish_reason for result in end.results] == [
        FinishReason.END_OF_SENTENCE,
        FinishReason.MAX_LENGTH,
    ]
    assert "" not in reader.deltas


async def test_sentences_are_decoded_side_by_side_and_sent_in_order(engine, backend, run):
    sources = [(5,), (6, 7, 8, 9, 10), (11,), (12, 13)]
    reader = Reader(engine, [sentence(*source) for source in sources], run)
    assert await reader.text() == " ".join(translation(*source) for source in sources)
    assert 4 in backend.step_rows


async def test_a_sentence_is_sent_when_it_ends_although_others_go_on(engine, backend, run):
    backend.hold()
    reader = Reader(engine, [sentence(5), sentence(6, 7, 8)], run)
    backend.release(2)
    await reader.arrived.acquire()
    assert reader.deltas == [translation(5)]
    backend.release()
    assert await reader.text() == f"{translation(5)} {translation(6, 7, 8)}"


async def test_more_sentences_than_rows(engine, run):
    sources = [tuple(range(5, 6 + n)) for n in range(8)]
    reader = Reader(engine, [sentence(*source) for source in sources], run)
    assert await reader.text() == " ".join(translation(*source) for source in sources)


async def test_nothing_to_decode_takes_no_engine(run):
    reader = Reader(None, [], run, gaps=[" \n"])
    assert await reader.text() == " \n"
    assert reader.deltas == []


async def test_cancelling_frees_the_rows_at_the_next_step(engine, backend, run):
    backend.hold()
    reader = Reader(engine, [sentence(*range(5, 25)), sentence(*range(5, 25))], run)
    await until(lambda: engine.active_rows == 2)
    reader.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader.task
    steps = len(backend.step_rows)
    backend.release()
    await until(lambda: engine.active_rows == 0)
    assert len(backend.step_rows) <= steps + 1


async def test_a_caller_who_goes_while_text_is_sent_frees_the_row(engine, backend, run):
    backend.hold()
    reader = Reader(engine, [sentence(*range(5, 25))], run, read=0)
    backend.release(3)
    await reader.arrived.acquire()
    await until(lambda: len(backend.step_rows) == 3)
    reader.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader.task
    backend.release()
    await until(lambda: engine.active_rows == 0)
    assert len(backend.step_rows) <= 4


async def test_a_slow_reader_holds_up_no_step_and_gets_the_rest_at_once(engine, backend, run):
    backend.hold()
    slow = Reader(engine, [sentence(*range(5, 25))], run, read=0)
    backend.release(3)
    await slow.arrived.acquire()
    backend.release()
    await until(lambda: engine.active_rows == 0)  # all is decoded, nothing is read
    slow.read_on()
    assert await slow.text() == translation(*range(5, 25))
    assert len(slow.deltas) == 1


async def test_a_failing_engine_ends_the_stream_with_its_error(engine, backend, run):
    backend.fail_at_step = 3
    reader = Reader(engine, [sentence(5, 6, 7, 8, 9), sentence(5, 6)], run)
    with pytest.raises(EngineError):
        await reader.task


async def test_an_engine_that_stops_ends_the_stream(engine, backend, run):
    backend.hold()
    reader = Reader(engine, [sentence(5, 6, 7)], run)
    await until(lambda: engine.active_rows == 1)
    stopping = asyncio.create_task(engine.stop())
    with pytest.raises(UnavailableError):
        await reader.task
    backend.release()
    await stopping


async def test_sentences_are_accepted_all_or_none(engine, backend, run):
    with pytest.raises(QueueFullError):
        await Reader(engine, [sentence(5)] * 9, run).task
    assert engine.waiting == engine.active_rows == 0
    assert backend.log == []


async def test_an_error_of_the_tokenizer_frees_the_rows(engine, backend, run):
    def broken(ids, alignment):
        raise ValueError("broken")

    backend.hold()
    reader = Reader(engine, [sentence(*range(5, 25), decode=broken), sentence(*range(5, 25))], run)
    backend.release(3)
    with pytest.raises(ValueError, match="broken"):
        await reader.task
    backend.release()
    await until(lambda: engine.active_rows == 0)
    assert len(backend.step_rows) < 20


class ObedientEngine:
    """Accepts `room` sentences; tests call what the requests' engine would."""

    def __init__(self, room=10):
        self.room = room
        self.requests = []
        self.cancelled = []

    def check_room(self, sentences):
        pass

    def submit(self, request):
        if len(self.requests) == self.room:
            raise UnavailableError("no more", retry_after=1.0)
        self.requests.append(request)

    def cancel(self, request):
        self.cancelled.append(request)


def result(*ids):
    hypothesis = Hypothesis(ids, -1.0, FinishReason.END_OF_SENTENCE, alignment=tuple(AlignedToken(i, 1.0) for i in ids))
    return SentenceResult((hypothesis,), Timing(0.0, 0.0, 0.0))


async def test_what_was_accepted_is_cancelled_when_the_rest_is_not(run):
    engine = ObedientEngine(room=2)
    with pytest.raises(UnavailableError):
        await Reader(engine, [sentence(5)] * 3, run).task
    assert engine.cancelled == engine.requests
    assert len(engine.requests) == 2


async def test_what_is_answered_is_not_cancelled(run):
    engine = ObedientEngine()
    reader = Reader(engine, [sentence(5), sentence(6)], run)
    await until(lambda: len(engine.requests) == 2)
    engine.requests[0].on_done((result(7),))
    await reader.arrived.acquire()
    reader.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader.task
    assert engine.cancelled == engine.requests[1:]


async def test_of_much_progress_only_the_newest_is_looked_at(run):
    engine, decoded = ObedientEngine(), []

    def decode(ids, alignment):
        decoded.append((ids, alignment))
        return words(ids, alignment)

    reader = Reader(engine, [sentence(5, decode=decode)], run)
    await until(lambda: engine.requests)
    (request,) = engine.requests
    ids, alignment = tuple(range(100)), tuple(AlignedToken(i, 1.0) for i in range(100))
    for length in range(1, 101):  # the event loop does not run meanwhile
        request.sentences[0].on_progress(ids[:length], alignment[:length])
    await reader.arrived.acquire()
    assert reader.deltas == [words(ids[:99], ())]
    assert decoded == [(ids, alignment), (ids[:99], alignment[:99])]
    request.on_done((result(*ids),))
    assert await reader.text() == words(ids, ())
    assert decoded[2:] == [(ids, alignment)]
