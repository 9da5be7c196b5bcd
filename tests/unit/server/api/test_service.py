"""The service, called as gRPC calls it: requests in, the engine's results out."""

import asyncio
import threading
from collections.abc import Sequence
from typing import NamedTuple

import pytest

from fakes.backend import EOS
from fakes.calls import make_call
from fakes.serving import FakeModel, FakeTokenizer, make_manifest, make_model, make_registry, make_settings
from translane.v1 import translation_pb2 as pb
from translane_server.api.service import TranslationService
from translane_server.core import errors
from translane_server.engine.sequence import AlignedToken, Hypothesis, Sentence, SentenceResult, Timing
from translane_server.models.glossary_folder import GlossaryFolder
from translane_server.models.registry import Registry
from translane_server.observation.metrics import Metrics
from translane_server.translation.limits import RequestLimits, limits_of


class Asked(NamedTuple):
    sentences: Sequence[Sentence]
    priority: int


class FakeDispatcher:
    """Answers at its next turn, with the source as the translation; or holds its requests."""

    def __init__(self):
        self.requests = []
        self.hold = False
        self.released = asyncio.Event()
        self.outcome = None
        self.refusal = None
        self.is_failing = False
        self.is_available = True
        self.rows = self.active_rows = self.waiting = self.waiting_limit = 0

    async def start(self):
        pass

    async def stop(self):
        pass

    def check_room(self, sentences, caller=""):
        if self.refusal:
            raise self.refusal

    async def decode(self, sentences, priority=0, caller=""):
        if not sentences:
            return ()
        self.requests.append(Asked(sentences, priority))
        await (self.released.wait() if self.hold else asyncio.sleep(0))
        return self.outcome or tuple(map(self._result, sentences))

    async def submitted(self):
        while not self.requests:  # noqa: ASYNC110 nobody tells
            await asyncio.sleep(0.001)

    @staticmethod
    def _result(sentence):
        ids = tuple(i + 1000 for i in sentence.source_ids[:-1])
        timing = Timing(queue=len(ids) / 10, encode=1.0, decode=1 / len(ids))
        return SentenceResult((Hypothesis(ids, -float(len(ids)), False),), timing)


@pytest.fixture
def engine():
    return FakeDispatcher()


@pytest.fixture
async def make_service(engine):
    async def make(open_=True, model=None, engine=engine, glossaries=None):
        registry, service = make_service_of(model or make_model(), engine, most_texts=4, glossaries=glossaries)
        if open_:
            await registry.start()
            registries.append(registry)
        return service

    registries: list[Registry] = []
    yield make
    for registry in registries:
        await registry.stop()


def make_service_of(model, engine, *, most_texts, glossaries=None):
    limits = RequestLimits(
        most_texts, 2 * most_texts, limits_of(make_settings().of_model("m"), model.manifest).tokens, 6
    )
    registry = make_registry(
        model, limits, Metrics(), lambda _metrics: engine, most_texts=most_texts, glossaries=glossaries
    )
    return registry, TranslationService(registry, most_texts, 1 << 20)


async def translate(service, *texts, **fields):
    return await service.Translate(pb.TranslateRequest(texts=texts, **fields), make_call())


async def violations(service, *texts, **fields):
    with pytest.raises(errors.InvalidRequestError) as caught:
        await translate(service, *texts, **fields)
    return {violation.field: violation.description for violation in caught.value.violations}


@pytest.mark.parametrize(("characters", "thread"), [(300, "MainThread"), (1200, "texts")])
async def test_long_requests_are_prepared_away_from_the_event_loop(engine, characters, thread):
    """And answered there; short ones are not, as there and back takes longer than their tokens."""
    seen = set()

    class SeenTokenizer(FakeTokenizer):
        def encode(self, texts):
            seen.add(threading.current_thread().name)
            return super().encode(texts)

        def decode(self, ids, unknowns=()):
            seen.add(threading.current_thread().name)
            return super().decode(ids, unknowns)

    model = FakeModel(make_manifest(), SeenTokenizer())
    texts = ["x" * 30] * (characters // 30)
    registry, service = make_service_of(model, engine, most_texts=64)
    await registry.start()
    response = await translate(service, *texts)
    await registry.stop()
    assert [t.hypotheses[0].text for t in response.translations] == texts
    assert seen == {thread}


async def test_a_caller_who_goes_ends_the_reading_of_the_request(make_service):
    """The only thread then reads the request of another caller."""
    started, ended = threading.Event(), threading.Event()

    class EndlessTokenizer(FakeTokenizer):
        def encode(self, texts):
            if "endless" in texts[0]:
                started.set()
                ended.wait(5)
            return super().encode(texts)

    service = await make_service(model=FakeModel(make_manifest(), EndlessTokenizer()))
    options = pb.DecodingOptions(split_sentences=True)
    task = asyncio.create_task(translate(service, "endless " * 240, "x" * 30, options=options))
    await asyncio.to_thread(started.wait, 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(service.idle(), 1)
    ended.set()
    response = await translate(service, "x" * 25 + "\n" * 1100, options=options)
    assert response.translations[0].hypotheses[0].text == "x" * 25 + "\n" * 1100


async def test_a_request_of_several_steps_is_not_idle(make_service, engine):
    engine.hold = True
    service = await make_service()
    task = asyncio.create_task(translate(service, "one", source_language="auto"))
    await engine.submitted()
    service.close()
    assert not service._idle.is_set()
    engine.released.set()
    assert (await task).translations[0].treatment.source_language == "zh"
    await asyncio.wait_for(service.idle(), 1)


async def test_a_full_queue_refuses_before_the_work_of_making_tokens(make_service, engine, monkeypatch):
    monkeypatch.setattr(FakeTokenizer, "encode", None)
    engine.refusal = errors.QueueFullError("full", retry_after=1.0)
    monkeypatch.setattr(FakeTokenizer, "encode_target", None)
    service = await make_service()
    with pytest.raises(errors.QueueFullError):
        await translate(service, "x")
    with pytest.raises(errors.QueueFullError):
        await service.Score(pb.ScoreRequest(inputs=[pb.ScoreInput(source="x", target="x")]), make_call())


async def test_list_models_fills_every_field(make_service, tmp_path):
    (tmp_path / "law.zh.en.tsv").write_text("a\tb\n", encoding="utf-8")
    glossaries = GlossaryFolder(tmp_path)
    glossaries.load()
    service = await make_service(open_=False, glossaries=glossaries)
    response = await service.ListModels(pb.ListModelsRequest(), make_call())
    for message in (response, response.models[0], response.limits):
        assert {field.name for field, _ in message.ListFields()} == set(message.DESCRIPTOR.fields_by_name)
    model = response.models[0]
    manifest = make_manifest()
    assert (model.name, model.version, model.parameters) == (manifest.name, manifest.version, 12345)
    assert (model.max_source_tokens, model.max_target_tokens, model.default_max_length) == (32, 24, 20)
    assert (response.limits.max_request_texts, response.limits.max_queue_size) == (4, 8)


MULTILINGUAL = {
    "source_languages": ("eng_Latn", "zho_Hans"),
    "target_languages": ("eng_Latn", "fra_Latn"),
    "language_templates": {
        "source": {"zho_Hans": {"source_prefix": [92]}},
        "target": {"fra_Latn": {"forced": [95]}},
    },
}


class ForcedDispatcher(FakeDispatcher):
    """Answers with what is forced, then "a", each token less probable than the one before."""

    @staticmethod
    def _result(sentence):
        ids = (*sentence.forced_ids, *FakeTokenizer().encode_target(["a"])[0])
        alignment = tuple(AlignedToken(place, 0.5) for place in range(len(ids)))
        log_probs = tuple(-1.0 * place for place in range(len(ids) + 1))
        hypothesis = Hypothesis(ids, -1.0, True, log_probs, alignment)
        return SentenceResult((hypothesis,), Timing(0, 0, 0))


class LanguageFakeTokenizer(FakeTokenizer):
    """Language tokens add nothing to a text."""

    def decode(self, ids, unknowns=()):
        return super().decode([[token for token in each if token != 95] for each in ids], unknowns)


@pytest.fixture
async def multilingual(make_service):
    engine = ForcedDispatcher()
    model = FakeModel(make_manifest(**MULTILINGUAL), LanguageFakeTokenizer())
    return await make_service(model=model, engine=engine), engine


async def test_a_prefix_follows_the_language_and_does_not_count(multilingual):
    service, engine = multilingual
    options = pb.DecodingOptions(target_prefix="b")
    await translate(service, "hi", source_language="zh", target_language="fr", options=options)
    sentence = engine.requests[0].sentences[0]
    assert (sentence.forced_ids, sentence.counted_ids) == ((95, *FakeTokenizer().encode_target(["b"])[0]), 0)
    assert sentence.options.max_length == 20


async def test_forced_tokens_are_held_to_the_room_there_is(multilingual):
    service, _ = multilingual
    languages = {"source_language": "zh", "target_language": "fr"}
    await translate(service, "hi", **languages, options=pb.DecodingOptions(max_length=24))
    too_long = pb.DecodingOptions(target_prefix="b" * 23)
    assert await violations(service, "hi", **languages, options=too_long) == {
        "options.target_prefix": "has 23 tokens, at most 22 are accepted"
    }
    no_room = pb.DecodingOptions(target_prefix="bb", max_length=22)
    assert await violations(service, "hi", **languages, options=no_room) == {
        "options.max_length": "is 22, and there is room for 21 tokens after target_prefix"
    }


async def test_a_language_token_is_no_part_of_what_is_returned(multilingual):
    service, _ = multilingual
    options = pb.DecodingOptions(return_tokens=True, return_token_scores=True, return_alignment=True)
    response = await translate(service, "hi", source_language="zh", target_language="fr", options=options)
    (translation,) = response.translations
    (hypothesis,) = translation.hypotheses
    assert hypothesis.text == "a"
    assert list(hypothesis.tokens) == ["a", "</s>"]
    assert list(hypothesis.token_log_probs) == [-1.0, -2.0]
    points = [(point.source_token, point.target_token) for point in hypothesis.alignment.points]
    assert points == [(1, 0)], "sources are counted with the language's token, targets without"
    assert translation.source_tokens == 4


async def test_scores_are_of_the_target_without_the_language(multilingual):
    service, engine = multilingual
    request = pb.ScoreRequest(
        inputs=[pb.ScoreInput(source="hi", target="ab")],
        source_language="zh",
        target_language="fr",
        return_tokens=True,
    )
    (score,) = (await service.Score(request, make_call())).scores
    sentence = engine.requests[0].sentences[0]
    assert sentence.source_ids[0] == 92
    assert sentence.forced_ids == (95, *FakeTokenizer().encode_target(["ab"])[0], EOS)
    assert (sentence.counted_ids, sentence.options.max_length) == (0, 0)
    assert list(score.tokens) == ["a", "b", "</s>"]
    assert score.token_log_probs[0] == -1.0
