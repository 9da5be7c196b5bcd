"""Requests to several models, or in languages to be found: what the models get, and what becomes of their answers."""

import asyncio
from contextlib import aclosing
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import pytest

from fakes.models import Model, models_of, never
from translane.options import Format, Options, Term
from translane.requests import TranslationRequest
from translane.results import (
    Delta,
    FinishReason,
    Hypothesis,
    StreamedTranslation,
    Timing,
    Translation,
    Translations,
    Treatment,
)
from translane_server.core import errors
from translane_server.core.budget import OverBudgetError
from translane_server.core.errors import FieldViolation, InvalidRequestError, QueueFullError
from translane_server.models.registry import Registry
from translane_server.observation.metrics import Metrics
from translane_server.translation import several_models
from translane_server.translation.translator import FREE, Ticket

GERMAN = "Das Wetter ist heute sehr schön, und wir gehen in den Park."
FRENCH = "Il fait très beau aujourd'hui et nous allons au parc."
CUT = FinishReason.MAX_LENGTH
END = FinishReason.END_OF_SENTENCE


class Step(Model):
    """A model that puts its name before a text."""

    steps: Any

    async def check(self, request, ticket=FREE):
        self.steps.checked.append((self.name, request))
        if self.name in self.steps.checks:
            raise self.steps.checks[self.name]

    async def translate(self, request, ticket=FREE):
        self.steps.requests.append((self.name, request))
        ticket.pay(len(request.texts))
        ticket.note(sentences=len(request.texts))
        try:
            waits = self.steps.gate and self.name not in self.steps.problems
            await (self.steps.gate.wait() if waits else asyncio.sleep(0))
        except asyncio.CancelledError:
            self.steps.ended.append(self.name)
            raise
        if self.name in self.steps.problems:
            raise self.steps.problems[self.name]
        reason = CUT if self.name in self.steps.cut else END
        treatment = Treatment(sentences=len(self.name), cut_sentences=1, preserved=2)
        translations = [
            Translation((Hypothesis(f"{self.name}({text})", None, reason),), len(text), treatment=treatment)
            for text in request.texts
        ]
        return Translations(translations, (self.name,), self._timing())

    async def stream(self, request, ticket=FREE):
        self.steps.requests.append((self.name, request))
        ticket.pay(1)
        if self.name in self.steps.problems:
            raise self.steps.problems[self.name]
        text = f"{self.name}({request.texts[0]})"
        yield Delta(text[:3])
        yield Delta(text[3:], StreamedTranslation(Hypothesis(text, None, END), self._timing()))

    def _timing(self):
        return Timing(queue=len(self.name), encode=1, decode=2, total=100, cached_texts=len(self.name))


@pytest.fixture
def steps():
    """What all models of a test have seen. `problems` has the errors of models, `checks` those of checks."""
    return SimpleNamespace(requests=[], checked=[], problems={}, checks={}, ended=[], gate=None, cut=set())


@pytest.fixture
def make_registry(steps):
    registries = []

    def make(*pairs, **settings):
        registry, metrics = Registry(dict, never, most_texts=4, **settings), Metrics()
        for model in models_of(metrics, *pairs, kind=Step):
            model.steps = steps
            registry.add(model)
        registries.append(registry)
        return registry

    yield make
    for registry in registries:
        registry.pool.stop()


def pivoted(*texts, **others):
    return TranslationRequest(texts, source_language="de", target_language="zh", **others)


def automatic(*texts, target="en", **others):
    return TranslationRequest(texts, source_language="auto", target_language=target, **others)


async def translate(registry, request, ticket=FREE):
    return await registry.translator(request).translate(request, ticket)


async def stream(registry, request, ticket=FREE):
    request = replace(request, streamed=True)
    async with aclosing(registry.translator(request).stream(request, ticket)) as deltas:
        return [delta async for delta in deltas]


@pytest.mark.parametrize("reason", [CUT, END])
async def test_the_answer_tells_of_both_steps(make_registry, steps, reason):
    """A translation of a cut translation is cut."""
    steps.cut.update({"de--en"} if reason == CUT else ())
    registry = make_registry("de--en", "en--zho_Hans")
    answer = await translate(registry, pivoted("a"))
    *deltas, end = await stream(registry, pivoted("a"))
    assert "".join(delta.text for delta in (*deltas, end)) == "en--zho_Hans(de--en(a))"
    assert [delta.translation for delta in deltas] == [None]
    (translation,) = answer.translations
    assert translation.treatment == Treatment(len("de--en"), 2, 2, pivot_language="en")
    assert end.translation.treatment == Treatment(len("de--en"), 1, 2, pivot_language="en")
    assert translation.source_tokens == len("de--en(a)")
    assert answer.models == end.translation.models == ("de--en", "en--zho_Hans")
    assert translation.finish_reason == end.translation.finish_reason == reason
    for timing in (answer.timing, end.translation.timing):
        assert (timing.queue, timing.encode, timing.decode) == (len("de--en") + len("en--zho_Hans"), 2, 4)
        assert 0 < timing.total < 2
        assert timing.cached_texts == len("en--zho_Hans")


OF_BOTH_STEPS = {
    *("beam_size", "length_penalty", "early_stopping", "patience", "coverage_penalty", "repetition_penalty"),
    *("no_repeat_ngram_size", "suppress_unknown", "replace_unknowns", "split_sentences", "preserve"),
    *("preserve_untranslatable", "use_shortlist", "check_numbers"),
}
OF_NO_STEP = {"terminology", "glossaries"}
OF_THE_SECOND_STEP = {
    *("num_hypotheses", "min_length", "max_length", "top_k", "top_p", "temperature", "seed", "target_prefix"),
    *("suppressed_phrases", "return_tokens", "return_token_scores", "return_alignment", "return_alternatives"),
    "return_quality",
}


def all_options():
    """Options of which each field is set."""
    values: dict[str, Any] = {"int": 2, "float": 2.0, "bool": True, "str": "x", "tuple[str, ...]": ("x",)}
    return Options(
        **{each.name: values.get(str(each.type).removesuffix(" | None"), (Term("a", "b"),)) for each in fields(Options)}
    )


def names(options):
    return {each.name for each in fields(Options) if getattr(options, each.name) not in (None, ())}


async def test_each_option_is_of_both_steps_of_the_second_or_of_none(make_registry, steps):
    """A new option takes a decision: which of the three sets is it in?"""
    options, registry = all_options(), make_registry("de--en", "en--zh")
    sets = [OF_BOTH_STEPS, OF_NO_STEP, OF_THE_SECOND_STEP]
    assert sorted(name for each in sets for name in each) == sorted(names(options))
    assert names(options) == {each.name for each in fields(Options)}
    with pytest.raises(InvalidRequestError, match="cannot be kept through a third language, en: the second") as caught:
        await translate(registry, pivoted("a", options=options))
    assert {violation.field.removeprefix("options.") for violation in caught.value.violations} == OF_NO_STEP
    options = replace(options, terminology=(), glossaries=())
    request = pivoted("a", "b", options=options, format="html")
    await translate(registry, request)
    (_, first), (_, second) = steps.requests
    assert names(first.options) == OF_BOTH_STEPS
    assert all(getattr(first.options, name) == getattr(options, name) for name in OF_BOTH_STEPS)
    assert (first.model, first.source_language, first.target_language) == ("de--en", "de", "en")
    assert (list(first.texts), first.format) == (["a", "b"], "html")
    assert (second.options, second.format) == (options, "html")
    assert (second.model, second.source_language, second.target_language) == ("en--zh", "en", "zh")
    assert list(second.texts) == ["de--en(a)", "de--en(b)"]


async def test_a_request_that_the_second_model_refuses_takes_no_work(make_registry, steps):
    steps.checks["en--zh"] = QueueFullError("full", retry_after=1)
    with pytest.raises(QueueFullError):
        await translate(make_registry("de--en", "en--zh"), pivoted("a", "b"))
    assert steps.requests == []
    ((_, checked),) = steps.checked
    assert list(checked.texts) == ["", ""]


async def test_the_only_language_needs_no_library(make_registry, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "py3langid", None)
    answer = await translate(make_registry("de--en"), automatic(FRENCH))
    assert answer.translations[0].treatment.source_language == "de"
    with pytest.raises(InvalidRequestError, match=r"translane\[language-id\]"):
        await translate(make_registry("de.fr--en"), automatic(FRENCH))


async def test_languages_at_the_same_time_take_as_long_as_the_slowest(make_registry):
    facts: dict[str, Any] = {}
    ticket = Ticket(note=facts.update)
    answer = await translate(make_registry("fr--en", "de--en"), automatic(FRENCH, GERMAN, FRENCH), ticket)
    assert facts["sentences"] == 3
    assert [each.text for each in answer.translations] == [
        f"fr--en({FRENCH})",
        f"de--en({GERMAN})",
        f"fr--en({FRENCH})",
    ]
    assert answer.models == ()
    assert [each.models for each in answer.translations] == [("fr--en",), ("de--en",), ("fr--en",)]
    timing = answer.timing
    assert (timing.queue, timing.encode, timing.decode, timing.cached_texts) == (6, 1, 2, 12)
    assert 0 < timing.total < 20


LONG = FieldViolation("text", "has 99 tokens")
LONG_AND_ODD = FieldViolation("texts[1]", "has 99 tokens"), FieldViolation("options.seed", "is odd")


@pytest.mark.parametrize(
    ("answered", "request_", "model", "wrong", "expected"),
    [
        (stream, pivoted("a"), "de--en", [LONG], "text: has 99 tokens"),
        (stream, pivoted("a"), "en--zh", [LONG], "text: its translation into en has 99 tokens"),
        (translate, pivoted("a", "b"), "en--zh", LONG_AND_ODD,
         "texts[1]: its translation into en has 99 tokens; options.seed: is odd"),
        (translate, automatic(FRENCH, GERMAN, FRENCH), "fr--en", LONG_AND_ODD,
         "texts[2]: has 99 tokens; options.seed: is odd"),
    ],
)  # fmt: skip
async def test_errors_are_about_the_texts_of_the_request(
    make_registry, steps, answered, request_, model, wrong, expected
):
    steps.problems[model] = InvalidRequestError(*wrong)
    with pytest.raises(InvalidRequestError) as caught:
        await answered(make_registry("de--en", "fr--en", "en--zh"), request_)
    assert str(caught.value) == expected
    assert {request.field for _, request in steps.requests} == {"text" if answered is stream else "texts[{}]"}


@pytest.mark.parametrize(
    ("request_", "problems", "error", "ended"),
    [
        (pivoted("a"), {}, asyncio.CancelledError, ["de--en"]),
        (automatic(FRENCH, GERMAN), {}, asyncio.CancelledError, ["de--en", "fr--en"]),
        (automatic(FRENCH, GERMAN), {"fr--en": QueueFullError("full", 1)}, QueueFullError, ["de--en"]),
    ],
    ids=["a caller goes in the first step", "a caller goes", "one language fails"],
)
async def test_all_that_runs_for_a_request_ends_with_it(make_registry, steps, request_, problems, error, ended):
    registry = make_registry("fr--en", "de--en", "en--zh")
    steps.gate, steps.problems = asyncio.Event(), problems
    task = asyncio.create_task(translate(registry, request_))
    while len(steps.requests) < len(ended) + len(problems):  # noqa: ASYNC110 nobody tells
        await asyncio.sleep(0.001)
    if not problems:
        task.cancel()
    with pytest.raises(error):
        await task
    assert sorted(steps.ended) == ended
    assert len(steps.requests) == len(ended) + len(problems)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (automatic(), "texts: is empty; at least one is needed"),
        (automatic(*"abcde"), "texts: has 5 entries, at most 4 are accepted"),
    ],
)
async def test_refusals(make_registry, steps, request_, expected):
    with pytest.raises(errors.RequestError) as caught:
        await translate(make_registry("fr--en", "de--en"), request_)
    assert str(caught.value) == expected
    assert steps.requests == []


class Identifier:
    made = 0

    def __init__(self):
        type(self).made += 1

    def find(self, texts, candidates, _budget):
        if "slow" in texts:
            raise OverBudgetError
        return [candidates["de" in text] for text in texts]


@pytest.fixture
def identifier(monkeypatch):
    Identifier.made = 0
    monkeypatch.setattr(several_models, "LanguageIdentifier", Identifier)
    return Identifier


async def test_the_identifier_is_loaded_once_and_sees_no_tags(make_registry, identifier, monkeypatch):
    registry = make_registry("en.de--fr")
    sizes, read = [], registry.pool.read
    monkeypatch.setattr(registry.pool, "read", lambda size, *others: sizes.append(size) or read(size, *others))

    async def found(*texts, **fields):
        answer = await translate(registry, automatic(*texts, target="fr", **fields))
        return [each.treatment.source_language for each in answer.translations]

    assert await found("x de", "x", "<de>x") == ["de", "en", "de"]
    assert await found(html := "<p lang=de>x</p>", format=Format.HTML) == ["en"]
    assert identifier.made == 1
    of_three, of_one = sizes
    assert of_three > of_one > len(html)


@pytest.mark.parametrize(("streamed", "field"), [(False, "texts"), (True, "text")])
async def test_what_takes_too_long_is_refused(make_registry, identifier, streamed, field):
    answered = stream if streamed else translate
    with pytest.raises(InvalidRequestError, match="to read; send less text") as caught:
        await answered(make_registry("en.de--fr"), automatic("slow", target="fr"))
    assert [each.field for each in caught.value.violations] == [field]
