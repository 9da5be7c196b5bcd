"""How requests are read: on which thread, for how long, and with which tokens around their texts."""

import asyncio
import threading
from typing import Any

import pytest

from fakes.serving import FakeModel, FakeTokenizer, make_manifest, serving
from helpers.failures import failed
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


async def test_a_full_queue_refuses_before_the_work_of_making_tokens(monkeypatch):
    async with serving(rows=1, max_request_texts=2, max_queue_size=2) as running:
        running.backend.hold()
        first = asyncio.ensure_future(running.stub.Translate(pb.TranslateRequest(texts=["a"])))
        await until(lambda: running.dispatcher.active_rows == 1)
        second = asyncio.ensure_future(running.stub.Translate(pb.TranslateRequest(texts=["b", "c"])))
        await until(lambda: running.dispatcher.waiting == 2)
        monkeypatch.setattr(FakeTokenizer, "encode", None)
        monkeypatch.setattr(FakeTokenizer, "encode_target", None)
        scored = pb.ScoreRequest(inputs=[pb.ScoreInput(source="x", target="x")])
        for refused in (running.stub.Translate(pb.TranslateRequest(texts=["x"])), running.stub.Score(scored)):
            assert (await failed(refused)).reason == "QUEUE_FULL"
        running.backend.release()
        await asyncio.gather(first, second)


SOURCE, FORCED = 92, 95  # the tokens of the languages

MULTILINGUAL = {
    "source_languages": ("eng_Latn", "zho_Hans"),
    "target_languages": ("eng_Latn", "fra_Latn"),
    "language_templates": {
        "source": {"zho_Hans": {"source_prefix": [SOURCE]}},
        "target": {"fra_Latn": {"forced": [FORCED]}},
    },
}
LANGUAGES: dict[str, Any] = {"source_language": "zh", "target_language": "fr"}


class LanguageTokenizer(FakeTokenizer):
    """Language tokens add nothing to a text."""

    def decode(self, ids, unknowns=()):
        return super().decode([[token for token in each if token != FORCED] for each in ids], unknowns)


async def test_tokens_of_languages_are_no_part_of_an_answer():
    async with serving(model=FakeModel(make_manifest(**MULTILINGUAL), LanguageTokenizer())) as running:
        running.backend.takes_others = True
        options = pb.DecodingOptions(return_tokens=True, return_token_scores=True, return_alignment=True)
        asked = pb.TranslateRequest(texts=["hi"], options=options, **LANGUAGES)
        (translation,) = (await running.stub.Translate(asked)).translations
        scored = pb.ScoreRequest(inputs=[pb.ScoreInput(source="hi", target="hi")], return_tokens=True, **LANGUAGES)
        (score,) = (await running.stub.Score(scored)).scores
    (hypothesis,) = translation.hypotheses
    assert hypothesis.text == "hi"
    assert list(hypothesis.tokens) == list(score.tokens) == ["h", "i", "</s>"]
    # The token of the language comes first, at the place of the first step.
    assert list(hypothesis.token_log_probs) == list(score.token_log_probs) == [-2 / 8, -3 / 8, -4 / 8]
    points = [(point.source_token, point.target_token) for point in hypothesis.alignment.points if point.weight > 0.5]
    assert points[:2] == [(1, 0), (2, 1)], "sources are counted with the language's token, targets without"
    assert translation.source_tokens == 4


async def test_forced_tokens_are_held_to_the_room_there_is():
    async with serving(model=FakeModel(make_manifest(**MULTILINGUAL), LanguageTokenizer())) as running:

        async def refusal(**options):
            asked = pb.TranslateRequest(texts=["hi"], options=options, **LANGUAGES)
            return (await failed(running.stub.Translate(asked))).message

        problem = "options.target_prefix: has 23 tokens, at most 22 are accepted"
        assert await refusal(target_prefix="b" * 23) == problem
        problem = "options.max_length: is 22, and there is room for 21 tokens after target_prefix"
        assert await refusal(target_prefix="bb", max_length=22) == problem
