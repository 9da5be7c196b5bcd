"""Streams of a translator, over a dispatcher and a backend without a model that translates a text to itself."""

import asyncio
from contextlib import aclosing

import pytest

from fakes.backend import FakeBackend
from fakes.replicas import fake_replica
from fakes.serving import FakeTokenizer, make_manifest
from translane.options import checked_options
from translane.requests import TranslationRequest
from translane_server.observation.metrics import Metrics
from translane_server.translation import translations, translator
from translane_server.translation.limits import RequestLimits, TokenLimits
from translane_server.translation.tokenizer_pool import TokenizerPool
from translane_server.translation.translator import Translator
from translane_server.workers.dispatcher import Dispatcher

LONG = "abcdefghijklmnopqrst"


class Reader:
    """Starts a stream, and keeps its deltas. `read` is how many it takes before it waits for `read_on`."""

    def __init__(self, engine, text, read=1000, **options):
        manifest = make_manifest(source_languages=["en"])
        limits = RequestLimits(8, 8, TokenLimits(64, 32, 32), max_beam_size=6)
        pool, metrics = TokenizerPool(), Metrics().of_model("m")
        made = Translator("m", manifest, FakeTokenizer(), limits, engine, pool, metrics)
        self.deltas = []
        self.arrived = asyncio.Semaphore(0)
        self.may_read = asyncio.Semaphore(read)
        request = TranslationRequest([text], options=checked_options(options), streamed=True)
        self.task = asyncio.create_task(self._read(made.stream(request)))

    async def _read(self, parts):
        async with aclosing(parts):
            async for part in parts:
                self.deltas.append(part.text)
                if part.translation:
                    return part.translation
                self.arrived.release()
                await self.may_read.acquire()
        raise AssertionError("the stream has no end")

    def read_on(self):
        for _ in range(1000):
            self.may_read.release()

    async def text(self):
        end = await self.task
        assert "".join(self.deltas) == end.text
        return end.text


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


async def test_deltas_of_several_sentences_are_the_text_with_what_stands_between_them(engine):
    text = "  - One!\n\nTwo! Three\n"
    reader = Reader(engine, text)
    assert await reader.text() == text
    assert "" not in reader.deltas[:-1]
    assert len(reader.deltas) >= 3


async def test_a_sentence_that_is_cut_off_ends_with_what_it_has(engine):
    assert await Reader(engine, "abc! def!", max_length=2).text() == "ab de"


async def test_a_sentence_from_which_something_is_taken_out_is_sent_when_it_ends(engine):
    reader = Reader(engine, "One {a} more! Two! ")
    text = await reader.text()
    assert "{a}" in text
    assert reader.deltas[0] == text[: text.index("!") + 1]


async def test_a_slow_reader_holds_up_no_step_and_gets_the_rest_at_once(engine, backend):
    backend.hold()
    slow = Reader(engine, LONG, read=0)
    backend.release(3)
    await slow.arrived.acquire()
    backend.release()
    await until(lambda: engine.active_rows == 0)  # all is decoded, nothing is read
    slow.read_on()
    assert await slow.text() == LONG
    assert len(slow.deltas) == 2


async def test_an_error_of_the_tokenizer_frees_the_rows(engine, backend, monkeypatch):
    def broken(*_arguments):
        raise ValueError("broken")

    monkeypatch.setattr(translator, "surfaces", broken)
    backend.hold()
    reader = Reader(engine, f"{LONG}!\n{LONG}!")
    backend.release(3)
    with pytest.raises(ValueError, match="broken"):
        await reader.task
    backend.release()
    await until(lambda: engine.active_rows == 0)
    assert len(backend.step_rows) < 20


async def test_every_token_is_looked_at_once(engine, monkeypatch):
    seen = []

    def surfaces_of(plan, segment, tokens):
        seen.extend(tokens.token_ids)
        return translations.surfaces(plan, segment, tokens)

    monkeypatch.setattr(translator, "surfaces", surfaces_of)
    assert await Reader(engine, LONG).text() == LONG
    (ids,) = FakeTokenizer().encode_target([LONG])
    assert seen == ids[: len(seen)]
