"""How requests are read: on which thread, for how long, and with which tokens around their texts."""

import asyncio
import threading

import pytest

from fakes.serving import FakeModel, FakeTokenizer, make_manifest, serving
from helpers.http_calls import until
from translane.v1 import translation_pb2 as pb


@pytest.mark.parametrize(("characters", "thread"), [(300, "MainThread"), (1200, "texts")])
async def test_long_requests_are_prepared_away_from_the_event_loop(characters, thread):
    """And answered there; short ones are not, as there and back takes longer than their tokens."""
    seen = set()

    class SeenTokenizer(FakeTokenizer):
        def encode(self, texts):
            seen.add(threading.current_thread().name)
            return super().encode(texts)

        def decode(self, ids, unknowns=()):
            seen.add(threading.current_thread().name)
            return super().decode(ids, unknowns)

    texts = ["x" * 20] * (characters // 20)
    async with serving(model=FakeModel(make_manifest(), SeenTokenizer()), max_request_texts=64, rows=64) as running:
        response = await running.stub.Translate(pb.TranslateRequest(texts=texts))
    assert [each.hypotheses[0].text for each in response.translations] == texts
    assert seen == {thread}


async def test_a_caller_who_goes_ends_the_reading_of_the_request():
    """The only thread then reads the request of another caller."""
    started, ended = threading.Event(), threading.Event()

    class EndlessTokenizer(FakeTokenizer):
        def encode(self, texts):
            if "endless" in texts[0]:
                started.set()
                ended.wait(5)
            return super().encode(texts)

    options = pb.DecodingOptions(split_sentences=True)
    async with serving(model=FakeModel(make_manifest(), EndlessTokenizer())) as running:
        endless = pb.TranslateRequest(texts=["endless " * 240, "x" * 30], options=options)
        call = running.stub.Translate(endless)
        await asyncio.to_thread(started.wait, 5)
        call.cancel()
        await until(lambda: running.server._service._running == 0, 1)
        ended.set()
        text = "x" * 20 + "\n" * 1100
        response = await running.stub.Translate(pb.TranslateRequest(texts=[text], options=options))
        assert response.translations[0].hypotheses[0].text == text
