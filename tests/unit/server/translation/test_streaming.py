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


async def streamed(engine, text, **options):
    """The text of a stream, which its deltas make up."""
    limits = RequestLimits(8, 8, TokenLimits(64, 32, 32), max_beam_size=6)
    metrics = Metrics().of_model("m")
    made = Translator(
        "m", make_manifest(source_languages=["en"]), FakeTokenizer(), limits, engine, TokenizerPool(), metrics
    )
    request = TranslationRequest([text], options=checked_options(options), streamed=True)
    async with aclosing(made.stream(request)) as stream:
        parts = [part async for part in stream]
    end = parts[-1].translation
    assert end
    assert "".join(part.text for part in parts) == end.text
    return end.text


@pytest.fixture
def backend():
    return FakeBackend(rows=4)


@pytest.fixture
async def engine(backend):
    engine = Dispatcher([fake_replica(backend)], waiting_limit=8)
    await engine.start()
    yield engine
    await engine.stop()


async def test_a_sentence_that_is_cut_off_ends_with_what_it_has(engine):
    assert await streamed(engine, "abc! def!", max_length=2) == "ab de"


async def test_an_error_of_the_tokenizer_frees_the_rows(engine, backend, monkeypatch):
    def broken(*_arguments):
        raise ValueError("broken")

    monkeypatch.setattr(translator, "surfaces", broken)
    backend.hold()
    stream = asyncio.create_task(streamed(engine, f"{LONG}!\n{LONG}!"))
    while engine.active_rows < 2:  # noqa: ASYNC110 nobody tells
        await asyncio.sleep(0.001)
    backend.release(3)
    with pytest.raises(ValueError, match="broken"):
        await stream
    backend.release()
    async with asyncio.timeout(10):
        while engine.active_rows:  # noqa: ASYNC110 set by a thread
            await asyncio.sleep(0.001)
    assert len(backend.step_rows) < 20


async def test_every_token_is_looked_at_once(engine, monkeypatch):
    seen = []

    def surfaces_of(plan, segment, tokens, before):
        seen.extend(tokens.token_ids)
        return translations.surfaces(plan, segment, tokens, before)

    monkeypatch.setattr(translator, "surfaces", surfaces_of)
    assert await streamed(engine, LONG) == LONG
    (ids,) = FakeTokenizer().encode_target([LONG])
    assert seen == ids[: len(seen)]
