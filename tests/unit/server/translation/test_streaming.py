"""Streams over a dispatcher and a backend without a model."""

import asyncio
from contextlib import aclosing

import pytest

from fakes.backend import EOS, OFFSET, FakeBackend
from fakes.replicas import fake_replica
from translane_server.core.errors import QueueFullError, UnavailableError
from translane_server.engine.options import DecodingOptions
from translane_server.engine.sequence import Sentence
from translane_server.translation.translator import StreamedSentence, StreamEnd, stream_text
from translane_server.workers.dispatcher import Dispatcher


def surfaces(tokens):
    return [b" %d" % token for token in tokens.token_ids]


def words(ids):
    return " ".join(f"{i}" for i in ids)


async def text_of(result):
    return words(result.hypotheses[0].token_ids)


def sentence(*ids, max_length=32, surfaces=surfaces):
    return StreamedSentence(Sentence([*ids, EOS], DecodingOptions(max_length)), surfaces, text_of)


def translation(*ids):
    return words([i + OFFSET for i in ids])


class Reader:
    """Starts a stream, and keeps its deltas. `read` is how many it takes before it waits for `read_on`."""

    def __init__(self, engine, sentences, gaps=None, read=1000):
        self.deltas = []
        self.arrived = asyncio.Semaphore(0)
        self.may_read = asyncio.Semaphore(read)
        gaps = gaps or ["", *[" "] * (len(sentences) - 1), *[""] * bool(sentences)]
        self.task = asyncio.create_task(self._read(stream_text(engine, sentences, gaps)))

    async def _read(self, parts):
        async with aclosing(parts):
            async for part in parts:
                if isinstance(part, StreamEnd):
                    return part
                self.deltas.append(part)
                self.arrived.release()
                await self.may_read.acquire()
        raise AssertionError("the stream has no end")

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
    engine = Dispatcher([fake_replica(backend)], waiting_limit=8)
    await engine.start()
    yield engine
    if backend.gate is not None:
        backend.release()
    await engine.stop()


async def until(condition):
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 set by a thread
            await asyncio.sleep(0.001)


async def test_the_end_has_the_result_and_the_text_of_each_sentence(engine):
    reader = Reader(engine, [sentence(5, 6), sentence(7, max_length=1)], gaps=["> ", "\n\n", " <"])
    assert await reader.text() == f"> {translation(5, 6)}\n\n{translation(7)} <"
    end = reader.task.result()
    assert [result.hypotheses[0].is_complete for result in end.results] == [True, False]
    assert "" not in reader.deltas


async def test_a_caller_who_goes_while_text_is_sent_frees_the_row(engine, backend):
    backend.hold()
    reader = Reader(engine, [sentence(*range(5, 25))], read=0)
    backend.release(3)
    await reader.arrived.acquire()
    await until(lambda: len(backend.step_rows) == 3)
    reader.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader.task
    backend.release()
    await until(lambda: engine.active_rows == 0)
    assert len(backend.step_rows) <= 4


async def test_a_slow_reader_holds_up_no_step_and_gets_the_rest_at_once(engine, backend):
    backend.hold()
    slow = Reader(engine, [sentence(*range(5, 25))], read=0)
    backend.release(3)
    await slow.arrived.acquire()
    backend.release()
    await until(lambda: engine.active_rows == 0)  # all is decoded, nothing is read
    slow.read_on()
    assert await slow.text() == translation(*range(5, 25))
    assert len(slow.deltas) == 1


async def test_an_engine_that_stops_ends_the_stream(engine, backend):
    backend.hold()
    reader = Reader(engine, [sentence(5, 6, 7)])
    await until(lambda: engine.active_rows == 1)
    stopping = asyncio.create_task(engine.stop())
    with pytest.raises(UnavailableError):
        await reader.task
    backend.release()
    await stopping


async def test_sentences_are_accepted_all_or_none(engine, backend):
    with pytest.raises(QueueFullError):
        await Reader(engine, [sentence(5)] * 9).task
    assert engine.waiting == engine.active_rows == 0
    assert backend.log == []


async def test_an_error_of_the_tokenizer_frees_the_rows(engine, backend):
    def broken(tokens):
        raise ValueError("broken")

    backend.hold()
    reader = Reader(engine, [sentence(*range(5, 25), surfaces=broken), sentence(*range(5, 25))])
    backend.release(3)
    with pytest.raises(ValueError, match="broken"):
        await reader.task
    backend.release()
    await until(lambda: engine.active_rows == 0)
    assert len(backend.step_rows) < 20


async def test_every_token_is_looked_at_once(engine):
    seen = []

    def surfaces_of(tokens):
        seen.extend(tokens.token_ids)
        return surfaces(tokens)

    source = tuple(range(5, 30))
    assert await Reader(engine, [sentence(*source, surfaces=surfaces_of)]).text() == translation(*source)
    assert seen == [token + OFFSET for token in source][: len(seen)]
