"""Requests in several steps: which requests the steps get, and what becomes of their answers."""

import asyncio
import time

import pytest
from google.protobuf.duration_pb2 import Duration

from fakes.calls import make_call
from fakes.models import Model
from translane.v1 import translation_pb2 as pb
from translane_server import errors
from translane_server.errors import FieldViolation, InvalidRequestError, QueueFullError
from translane_server.models.registry import Registry
from translane_server.observation.metrics import Metrics
from translane_server.rpc.detours import Detours
from translane_server.rpc.pivoted import check_pivoted, first_step, second_step
from translane_server.rpc.text_workers import TextWorkers
from translane_server.text.language_tags import is_auto

GERMAN = "Das Wetter ist heute sehr schön, und wir gehen in den Park."
FRENCH = "Il fait très beau aujourd'hui et nous allons au parc."
CUT = pb.FINISH_REASON_MAX_LENGTH


def never(name, folder):
    """No model is found in a folder here."""
    raise AssertionError(name)


def seconds(duration):
    return duration.ToTimedelta().total_seconds()


class Steps:
    """Models that put their name before a text. `problems` has the errors of models, `checks` those of checks."""

    def __init__(self):
        self.requests = []
        self.paid = []
        self.checked = []
        self.problems = {}
        self.checks = {}
        self.ended = []
        self.gate = None
        self.cut = set()

    async def check(self, request, served, _call):
        self.checked.append((served.name, request))
        if served.name in self.checks:
            raise self.checks[served.name]

    async def translate(self, request, served, _call, *, is_paid=False):
        self.paid.append(is_paid)
        self.requests.append((served.name, request))
        try:
            await (self.gate.wait() if self.gate else asyncio.sleep(0))
        except asyncio.CancelledError:
            self.ended.append(served.name)
            raise
        if served.name in self.problems:
            raise self.problems[served.name]
        reason = CUT if served.name in self.cut else pb.FINISH_REASON_END_OF_SENTENCE
        translations = [
            pb.Translation(
                hypotheses=[pb.Hypothesis(text=f"{served.name}({text})", finish_reason=reason)],
                source_tokens=len(text),
                treatment=pb.Treatment(sentences=len(served.name), cut_sentences=1, preserved=2),
            )
            for text in request.texts
        ]
        return pb.TranslateResponse(translations=translations, model=served.name, timing=self._timing(served))

    async def stream(self, request, served, _call, write, *, is_paid=False):
        self.paid.append(is_paid)
        self.requests.append((served.name, request))
        if served.name in self.problems:
            raise self.problems[served.name]
        text = f"{served.name}({request.text})"
        await write(pb.TranslateStreamResponse(text_delta=text[:3]))
        await write(
            pb.TranslateStreamResponse(
                text_delta=text[3:], hypothesis=pb.Hypothesis(text=text), timing=self._timing(served)
            )
        )

    @staticmethod
    def _timing(served):
        length = len(served.name)
        return pb.Timing(queue=Duration(seconds=length), encode=Duration(seconds=1), decode=Duration(seconds=2))


class Routed:
    """Hands requests to detours with what the models say, as the service does."""

    def __init__(self, models, detours):
        self.models = models
        self._detours = detours

    def _pivot(self, request):
        if is_auto(request.source_language):
            return None
        return self.models.route(request.model, request.source_language, request.target_language)

    async def translate(self, request):
        return await self._detours.translate(request, self._pivot(request), make_call())

    async def stream(self, request, write):
        await self._detours.stream(request, self._pivot(request), make_call(), write)


@pytest.fixture
def steps():
    return Steps()


@pytest.fixture
def make_detours(steps):
    workers = TextWorkers(1)

    def make(*pairs, **settings):
        registry, metrics = Registry(dict, never, **settings), Metrics()
        for pair in pairs:
            source, target = (side.split(".") for side in pair.split("--"))
            registry.add(Model(metrics, pair, source_languages=source, target_languages=target))
        return Routed(registry, Detours(registry, steps, workers, 4, time.perf_counter))

    yield make
    workers.stop()


def pivoted(*texts, **fields):
    return pb.TranslateRequest(texts=texts, source_language="de", target_language="zh", **fields)


def automatic(*texts, target="en", **fields):
    return pb.TranslateRequest(texts=texts, source_language="auto", target_language=target, **fields)


async def collect(detours, request):
    messages: list[pb.TranslateStreamResponse] = []

    async def write(message):
        messages.append(message)

    await detours.stream(request, write)
    return messages


# Two models


@pytest.mark.parametrize("streams", [False, True])
async def test_the_sentences_of_both_steps_are_paid_for_once(make_detours, steps, streams):
    detours = make_detours("de--en", "en--zh")
    if streams:
        await collect(detours, pb.TranslateStreamRequest(text="a", source_language="de", target_language="zh"))
    else:
        await detours.translate(pivoted("a", "b"))
    assert steps.paid == [False, True]


async def test_the_answer_tells_of_both_steps(make_detours, steps):
    response = await make_detours("de--en", "en--zho_Hans").translate(pivoted("a"))
    (translation,) = response.translations
    expected = pb.Treatment(sentences=len("de--en"), cut_sentences=2, preserved=2, pivot_language="en")
    assert translation.treatment == expected
    assert translation.source_tokens == len("de--en(a)")
    assert seconds(response.timing.queue) == len("de--en") + len("en--zho_Hans")
    assert (seconds(response.timing.encode), seconds(response.timing.decode)) == (2, 4)
    assert 0 < seconds(response.timing.total) < 2


async def test_a_translation_of_a_cut_translation_is_cut(make_detours, steps):
    steps.cut.add("de--en")
    response = await make_detours("de--en", "en--zh").translate(pivoted("a"))
    assert response.translations[0].hypotheses[0].finish_reason == CUT


async def test_each_step_has_its_options(make_detours, steps):
    options = pb.DecodingOptions(
        beam_size=3,
        num_hypotheses=2,
        length_penalty=0.5,
        target_prefix="x",
        max_length=7,
        split_sentences=True,
        preserve=["[a-z]"],
        preserve_untranslatable=False,
        return_tokens=True,
        suppressed_phrases=["y"],
    )
    await make_detours("de--en", "en--zh").translate(pivoted("a", options=options))
    (_, first), (_, second) = steps.requests
    assert first.options == pb.DecodingOptions(
        beam_size=3, length_penalty=0.5, split_sentences=True, preserve=["[a-z]"], preserve_untranslatable=False
    )
    assert second.options == options


OF_BOTH_STEPS = {
    *("beam_size", "length_penalty", "early_stopping", "patience", "coverage_penalty", "repetition_penalty"),
    *("no_repeat_ngram_size", "suppress_unknown", "replace_unknowns", "split_sentences", "preserve"),
    *("preserve_untranslatable", "use_shortlist"),
}
OF_NO_STEP = {"terminology", "glossaries"}
OF_THE_SECOND_STEP = {
    *("num_hypotheses", "min_length", "max_length", "top_k", "top_p", "temperature", "seed", "target_prefix"),
    *("suppressed_phrases", "return_tokens", "return_token_scores", "return_alignment", "return_alternatives"),
    "return_quality",
}


def all_options():
    """Options of which each field is set."""
    options = pb.DecodingOptions(terminology=[pb.Term(source="a", target="b")])
    for field in pb.DecodingOptions.DESCRIPTOR.fields:
        value = {field.CPPTYPE_STRING: "x", field.CPPTYPE_BOOL: True}.get(field.cpp_type, 2)
        if field.name in ("suppressed_phrases", "preserve", "glossaries"):
            getattr(options, field.name).append(value)
        elif field.name != "terminology":
            setattr(options, field.name, value)
    return options


def names(options):
    return {field.name for field, _ in options.ListFields()}


def test_each_option_is_of_both_steps_of_the_second_or_of_none(make_detours):
    """A new option takes a decision: which of the three sets is it in?"""
    options = all_options()
    sets = [OF_BOTH_STEPS, OF_NO_STEP, OF_THE_SECOND_STEP]
    assert sorted(name for each in sets for name in each) == sorted(names(options))
    assert names(options) == {field.name for field in pb.DecodingOptions.DESCRIPTOR.fields}
    pivot = make_detours("de--en", "en--zh").models.pivot("de", "zh")
    with pytest.raises(InvalidRequestError) as caught:
        check_pivoted(options, pivot)
    assert {violation.field.removeprefix("options.") for violation in caught.value.violations} == OF_NO_STEP
    for name in OF_NO_STEP:
        options.ClearField(name)
    check_pivoted(options, pivot)
    request = pivoted("a", options=options)
    first = first_step(request, pivot).options
    assert names(first) == OF_BOTH_STEPS
    assert all(getattr(first, name) == getattr(options, name) for name in OF_BOTH_STEPS)
    answer = pb.TranslateResponse(translations=[pb.Translation(hypotheses=[pb.Hypothesis(text="b")])])
    assert second_step(request, pivot, answer).options == options


async def test_a_request_that_the_second_model_refuses_takes_no_work(make_detours, steps):
    steps.checks["en--zh"] = QueueFullError("full", retry_after=1)
    with pytest.raises(QueueFullError):
        await make_detours("de--en", "en--zh").translate(pivoted("a", "b"))
    assert steps.requests == []
    ((_, checked),) = steps.checked
    assert checked.texts == ["", ""]


async def test_errors_of_the_second_step_are_about_the_text_between(make_detours, steps):
    steps.problems["en--zh"] = InvalidRequestError(FieldViolation("texts[1]", "has 99 tokens"))
    with pytest.raises(InvalidRequestError) as caught:
        await make_detours("de--en", "en--zh").translate(pivoted("a", "b"))
    assert str(caught.value) == "texts[1]: its translation into en has 99 tokens"


async def test_a_caller_who_goes_ends_the_step_that_runs(make_detours, steps):
    steps.gate = asyncio.Event()
    task = asyncio.create_task(make_detours("de--en", "en--zh").translate(pivoted("a")))
    while not steps.requests:  # noqa: ASYNC110 nobody tells
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert steps.ended == ["de--en"]
    assert len(steps.requests) == 1


@pytest.mark.parametrize(
    ("model", "expected"),
    [("de--en", "text: has 99 tokens"), ("en--zh", "text: its translation into en has 99 tokens")],
)
async def test_errors_of_a_stream_name_its_text(make_detours, steps, model, expected):
    field = "texts[0]" if model == "de--en" else "text"
    steps.problems[model] = InvalidRequestError(FieldViolation(field, "has 99 tokens"))
    request = pb.TranslateStreamRequest(text="a", source_language="de", target_language="zh")
    with pytest.raises(InvalidRequestError) as caught:
        await collect(make_detours("de--en", "en--zh"), request)
    assert str(caught.value) == expected


# The language of the source


async def test_the_only_language_needs_no_library(make_detours, steps, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "py3langid", None)
    response = await make_detours("de--en").translate(automatic(FRENCH))
    assert response.translations[0].treatment.source_language == "de"
    with pytest.raises(InvalidRequestError, match=r"translane\[language-id\]"):
        await make_detours("de.fr--en").translate(automatic(FRENCH))


async def test_errors_name_the_texts_of_the_whole_request(make_detours, steps):
    steps.problems["fr--en"] = InvalidRequestError(
        FieldViolation("texts[1]", "is long"), FieldViolation("options.seed", "x")
    )
    with pytest.raises(InvalidRequestError) as caught:
        await make_detours("fr--en", "de--en").translate(automatic(FRENCH, GERMAN, FRENCH))
    assert str(caught.value) == "texts[2]: is long; options.seed: x"


async def test_the_first_failure_ends_the_requests_of_the_other_languages(make_detours, steps):
    detours = make_detours("fr--en", "de--en")
    steps.gate = asyncio.Event()
    task = asyncio.create_task(detours.translate(automatic(FRENCH, GERMAN)))
    while len(steps.requests) < 2:  # noqa: ASYNC110 nobody tells
        await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(steps.ended) == ["de--en", "fr--en"]


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (automatic(), "texts: is empty; at least one is needed"),
        (automatic(*"abcde"), "texts: has 5 entries, at most 4 are accepted"),
        (automatic("a", target="ja"), "target_language: no model translates to 'ja'; this server has fr--en, de--en"),
        (automatic("a", model="xx"), "model: there is no model 'xx'; this server has fr--en, de--en"),
    ],
)
async def test_refusals(make_detours, steps, request_, expected):
    with pytest.raises(errors.RequestError) as caught:
        await make_detours("fr--en", "de--en").translate(request_)
    assert str(caught.value) == expected
    assert steps.requests == []
