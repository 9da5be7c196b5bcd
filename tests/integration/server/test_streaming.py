"""TranslateStream over a real port: deltas while the sentence decodes, and what becomes of streams that end early."""

import asyncio
from typing import Any

import grpc
import pytest

from fakes.serving import serving
from helpers.http_calls import until
from helpers.real_server import serving_bundle
from helpers.server_process import BUNDLE
from helpers.tatoeba import tatoeba
from translane.v1 import translation_pb2 as pb
from translane_server.bundle.bundle import load_bundle

pytestmark = pytest.mark.slow

SENTENCES = 50


def request(text, *, options=None, **fields):
    return pb.TranslateStreamRequest(text=text, options=pb.DecodingOptions(**(options or {})), **fields)


def start(running, text, *, timeout=10, **fields):
    return running.stub.TranslateStream(request(text, **fields), timeout=timeout)


async def stream(running, text, **fields):
    """The deltas and the last message; the deltas are checked to be the text."""
    *messages, last = [message async for message in start(running, text, **fields)]
    assert all(message.text_delta for message in messages)
    assert not any(message.HasField("hypothesis") or message.HasField("timing") for message in messages)
    deltas = [*(message.text_delta for message in messages), last.text_delta]
    assert last.HasField("hypothesis")
    assert last.HasField("timing")
    assert "".join(deltas) == last.hypothesis.text
    return deltas, last


async def rest(call):
    """The text of a stream that was read from."""
    text = ""
    while (message := await call.read()) is not grpc.aio.EOF:  # type: ignore[attr-defined]  # grpc-stubs lacks it
        text += message.text_delta
    return text


async def unary(running, text, **fields):
    wanted = request(text, **fields)
    response = await running.stub.Translate(pb.TranslateRequest(texts=[text], options=wanted.options))
    return response.translations[0].hypotheses[0]


def active(running):
    return running.dispatcher.active_rows


async def test_the_first_delta_comes_while_the_sentence_decodes():
    async with serving() as running:
        running.backend.hold()
        call = start(running, "abcdefgh")
        running.backend.release(steps=3)
        first = await call.read()
        assert "abcdefgh".startswith(first.text_delta)
        assert first.text_delta
        assert len(running.backend.step_rows) <= 3, "it takes nine steps"
        assert active(running) == 1
        running.backend.release()
        assert first.text_delta + await rest(call) == "abcdefgh"


async def test_sentences_are_decoded_at_once_and_sent_in_order():
    async with serving() as running:
        running.backend.hold()
        text = "One is here.  Two!\n\n\tThree? "
        call = asyncio.create_task(stream(running, text, options={"split_sentences": True}))
        await until(lambda: active(running) == 3)
        running.backend.release()
        _, last = await call
        assert last.hypothesis.text == text
        assert last.hypothesis == await unary(running, text, options={"split_sentences": True})


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("code", ["CANCELLED", "DEADLINE_EXCEEDED"])
async def test_an_abandoned_stream_frees_its_rows_at_the_next_step(code, split):
    async with serving(rows=2) as running:
        running.backend.hold()
        text = "Abandoned here. Too!" if split else "abandoned"
        timeout = 0.5 if code == "DEADLINE_EXCEEDED" else 60
        call = start(running, text, timeout=timeout, options={"split_sentences": split})
        running.backend.release(steps=3)
        assert (await call.read()).text_delta
        await until(lambda: len(running.backend.step_rows) == 3)
        assert active(running) == 1 + split
        if code == "CANCELLED":
            call.cancel()
        assert (await call.code()).name == code
        await until(lambda: running.server._service._running == 0)
        await asyncio.sleep(0)  # the cancellation is sent at the end of the turn of the event loop it came in
        running.backend.release(steps=1)
        await until(lambda: active(running) == 0)
        running.backend.release()
        assert (await stream(running, "next"))[1].hypothesis.text == "next"
        assert len(running.backend.step_rows) <= 3 + 1 + len("next") + 1


SEARCHES: tuple[dict[str, Any], ...] = (
    {},
    {"temperature": 0.8, "top_p": 0.95, "seed": 2**63},
    {"beam_size": 4},
    {"beam_size": 3, "length_penalty": 0.5, "early_stopping": True, "repetition_penalty": 1.2},
    {"replace_unknowns": True, "no_repeat_ngram_size": 2, "target_prefix": "Well,"},
    {"split_sentences": True, "return_tokens": True, "return_token_scores": True},
)


async def test_streams_of_the_demo_model_are_what_translate_answers():
    sentences = tatoeba()[0][:SENTENCES]
    page = "　　" + "".join(sentences[:20]) + "\r\n\n" + "\n".join(sentences[20:40]) + "\n"
    async with serving_bundle(load_bundle(BUNDLE), max_batch_size=32) as running:
        limit = asyncio.Semaphore(64)

        async def both(text, options):
            async with limit:
                streamed, whole = await asyncio.gather(
                    stream(running, text, options=options, timeout=120), unary(running, text, options=options)
                )
            assert streamed[1].hypothesis == whole, (text, options)
            return streamed[0]

        for options in SEARCHES:
            texts = [*sentences, *[page] * ("split_sentences" in options)]
            deltas = await asyncio.gather(*(both(text, options) for text in texts))
            assert sum(len(each) > 1 for each in deltas) > len(sentences) / 3, "most come in parts"
        assert len(deltas[-1]) > 40, "the page comes in parts"


@pytest.mark.parametrize("split", [None, True, False])
async def test_a_sentence_with_what_is_kept_is_sent_when_it_ends(split):
    options = {} if split is None else {"split_sentences": split}
    async with serving() as running:
        text = "One {name}! And <b>two</b>? Then three 🙂."
        deltas, last = await stream(running, text, options=options)
        assert last.hypothesis == await unary(running, text, options=options)
        assert [last.hypothesis.text.count(part) for part in ("{name}", "<b>", "</b>", "🙂")] == [1, 1, 1, 1]
        assert len(deltas) <= 5, "sentences are sent whole"
        assert last.treatment.preserved == 4
        assert last.treatment.sentences == (0 if split is False else 3)
        _, last = await stream(running, "One two! Three", options=options)
        assert last.HasField("treatment") == (split is not False)
