"""Translates with several models: one for each language that is found, or two one after the other.

Of two models, the first translates the texts into the language in the middle, the second its translations into the
target language. What concerns the source text holds in the first step: format, sentences, and what is preserved. The
format and what is preserved hold in the second step, too, whose texts still have them. What concerns the translation
holds in the second step alone: its beginning, length, phrases, hypotheses, samples, and what is returned. Both steps
search with the same beams, and with shortlists or without.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol, TypeVar

from translane.options import Format, Options
from translane.requests import TranslationRequest
from translane.results import Delta, FinishReason, Hypothesis, Timing, Translation, Translations, Treatment
from translane_server.core.budget import Budget, OverBudgetError
from translane_server.core.errors import FieldViolation, InvalidRequestError
from translane_server.observation.metrics import ModelMetrics
from translane_server.text.language_id import LanguageIdentifier
from translane_server.translation.limits import refuse, takes_too_long, too_many
from translane_server.translation.tokenizer_pool import TokenizerPool
from translane_server.translation.translations import request_timing
from translane_server.translation.translator import FREE, Ticket, Translates

# The options of the first of two steps.
_OF_BOTH_STEPS = (
    "beam_size",
    "length_penalty",
    "early_stopping",
    "patience",
    "coverage_penalty",
    "repetition_penalty",
    "no_repeat_ngram_size",
    "suppress_unknown",
    "replace_unknowns",
    "split_sentences",
    "preserve",
    "preserve_untranslatable",
    "use_shortlist",
    "check_numbers",
)
# The options that pair the source text with the translation. No step sees both.
_OF_NO_STEP = ("terminology", "glossaries")

# The work of finding the language of a short text [bytes of a request that take as long to read].
_WORK_OF_A_TEXT = 128

# Tags of markup. Their names and attributes belong to no language.
_TAG = re.compile("<[^<>]*+>")

_Result = TypeVar("_Result")


class Step(Translates, Protocol):
    """Translates with one model."""

    async def check(self, request: TranslationRequest, ticket: Ticket = FREE) -> None:
        """Refuse a request whose options are wrong, or for which the model's queue has no room.

        Raises:
            RequestError: the request is refused.
        """


@dataclass(frozen=True)
class ThroughPivot:
    """Translates with two models, one after the other. The second one streams."""

    first: Step  # translates the source language to `language`
    second: Step  # translates `language` to the target language
    language: str  # the language in the middle, by the tag that `first` has for it

    @property
    def name(self) -> str:
        """The names of both models, for logs."""
        return f"{self.first.name} + {self.second.name}"

    @property
    def metrics(self) -> Sequence[ModelMetrics]:
        """Where its requests are counted."""
        return *self.first.metrics, *self.second.metrics

    @property
    def _models(self) -> tuple[str, ...]:
        return self.first.name, self.second.name

    async def translate(self, request: TranslationRequest, ticket: Ticket = FREE) -> Translations:
        """See `Translates`."""
        started = time.perf_counter()
        first = await self._first_step(request, ticket)
        with self._of_the_text_between():
            second = await self.second.translate(self._second(request, first.translations), ticket.paid())
        translations = [
            replace(
                after,
                hypotheses=tuple([_cut_off_as(before, each) for each in after.hypotheses]),
                treatment=self._treatment(before, after.treatment),
            )
            for before, after in zip(first.translations, second.translations, strict=True)
        ]
        timing = self._timing(first, second.timing, started)
        ticket.note(source_tokens=sum(each.source_tokens for each in translations))
        return Translations(translations, self._models, timing, {**first.versions, **second.versions})

    async def stream(self, request: TranslationRequest, ticket: Ticket = FREE) -> AsyncGenerator[Delta]:
        """See `Translates`."""
        started = time.perf_counter()
        first = await self._first_step(request, ticket)
        (before,) = first.translations
        with self._of_the_text_between():
            async with aclosing(self.second.stream(self._second(request, first.translations), ticket.paid())) as deltas:
                async for delta in deltas:
                    end = delta.translation
                    if end and end.timing:
                        end = replace(
                            end,
                            hypothesis=_cut_off_as(before, end.hypothesis),
                            timing=self._timing(first, end.timing, started),
                            treatment=self._treatment(before, end.treatment),
                            models=self._models,
                            versions={**first.versions, **end.versions},
                        )
                    yield Delta(delta.text, end)

    async def _first_step(self, request: TranslationRequest, ticket: Ticket) -> Translations:
        """Translate into the language in the middle, unless the second step would be refused."""
        problem = f"cannot be kept through a third language, {self.language}: the second model does not see the source"
        refuse([FieldViolation(f"options.{name}", problem) for name in _OF_NO_STEP if getattr(request.options, name)])
        blank = Translation((Hypothesis("", None),), 0)
        await self.second.check(self._second(request, [blank] * len(request.texts)), ticket)
        options = Options(**{name: getattr(request.options, name) for name in _OF_BOTH_STEPS})
        first = replace(request, model=self.first.name, target_language=self.language, options=options)
        return await self.first.translate(first, ticket)

    def _second(self, request: TranslationRequest, translations: Sequence[Translation]) -> TranslationRequest:
        """Return the request to the second model: its texts are the translations of the first step."""
        texts = [each.hypotheses[0].text for each in translations]
        return replace(request, texts=texts, model=self.second.name, source_language=self.language)

    def _treatment(self, before: Translation, after: Treatment | None) -> Treatment:
        """Return what both steps did with a text."""
        first, second = before.treatment or Treatment(), after or Treatment()
        return replace(
            second,
            pivot_language=self.language,
            sentences=first.sentences,
            cut_sentences=first.cut_sentences + second.cut_sentences,
            preserved=first.preserved,
            stand_ins=first.stand_ins,
            decoded_again=first.decoded_again + second.decoded_again,
            missing_numbers=first.missing_numbers + second.missing_numbers,
        )

    def _timing(self, first: Translations, second: Timing, started: float) -> Timing:
        return request_timing([first.timing, second], time.perf_counter() - started, second.cached_texts, sum)

    @contextmanager
    def _of_the_text_between(self) -> Iterator[None]:
        """Say in the errors of the second step that they are about texts that the caller did not send."""
        try:
            yield
        except InvalidRequestError as error:
            raise type(error)(
                *(
                    FieldViolation(each.field, f"its translation into {self.language} {each.description}")
                    if each.field.startswith("text")
                    else each
                    for each in error.violations
                )
            ) from None


@dataclass(eq=False)
class ByLanguage:
    """Finds the language of each text, and translates the texts of each language as a request of its own."""

    # finds the source languages for a request's model and target language
    find_candidates: Callable[[str, str], Sequence[str]]
    translator_for: Callable[[TranslationRequest], Translates]  # for a request in known languages
    pool: TokenizerPool
    most_texts: int
    name: str = ""
    metrics: Sequence[ModelMetrics] = ()
    _identifier: LanguageIdentifier | None = None  # loaded at its first use
    _loading: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def translate(self, request: TranslationRequest, ticket: Ticket = FREE) -> Translations:
        """See `Translates`. The texts of all languages are translated at the same time."""
        started = time.perf_counter()
        count = len(request.texts)
        if not count:
            raise InvalidRequestError(FieldViolation("texts", "is empty; at least one is needed"))
        refuse(too_many("texts", count, self.most_texts))
        parts: dict[str, list[int]] = {}
        for number, language in enumerate(await self.find(request, ticket.caller)):
            parts.setdefault(language, []).append(number)
        facts: dict[str, dict[str, Any]] = {language: {} for language in parts}

        def note(language: str, **told: Any) -> None:
            facts[language] |= told
            ticket.note(**{name: sum(each.get(name, 0) for each in facts.values()) for name in told})

        translated = await together(
            [
                self._part(request, language, numbers, replace(ticket, note=partial(note, language)))
                for language, numbers in parts.items()
            ]
        )
        found: dict[int, Translation] = {}
        for (language, numbers), part in zip(parts.items(), translated, strict=True):
            for number, each in zip(numbers, part.translations, strict=True):
                treatment = replace(each.treatment or Treatment(), source_language=language)
                found[number] = replace(each, treatment=treatment, models=part.models)
        models = list(dict.fromkeys(part.models for part in translated))
        translations = [found[number] for number in range(count)]
        ticket.note(
            model=", ".join(" + ".join(each) for each in models),
            source_tokens=sum(each.source_tokens for each in translations),
        )
        timings = [part.timing for part in translated]
        cached, total = sum(each.cached_texts for each in timings), time.perf_counter() - started
        timing = request_timing(timings, total, cached)
        versions = {name: version for part in translated for name, version in part.versions.items()}
        return Translations(translations, models[0] if len(models) == 1 else (), timing, versions)

    async def stream(self, request: TranslationRequest, ticket: Ticket = FREE) -> AsyncGenerator[Delta]:
        """See `Translates`."""
        started = time.perf_counter()
        (language,) = await self.find(request, ticket.caller)
        request = replace(request, source_language=language)
        translator = self.translator_for(request)
        ticket.note(model=translator.name)
        ticket.count_in(translator.metrics)
        async with aclosing(translator.stream(request, ticket)) as deltas:
            async for delta in deltas:
                end = delta.translation
                if end and end.timing:
                    end = replace(
                        end,
                        timing=replace(end.timing, total=time.perf_counter() - started),
                        treatment=replace(end.treatment or Treatment(), source_language=language),
                    )
                yield Delta(delta.text, end)

    async def _part(
        self, request: TranslationRequest, language: str, numbers: Sequence[int], ticket: Ticket
    ) -> Translations:
        """Translate some texts of a request, which have the same language."""
        texts = [request.texts[number] for number in numbers]
        part = replace(request, texts=texts, source_language=language)
        try:
            translator = self.translator_for(part)
            ticket.count_in(translator.metrics)
            return await translator.translate(part, ticket)
        except InvalidRequestError as error:  # the caller has other numbers for the texts
            renamed = [FieldViolation(_renumbered(each.field, numbers), each.description) for each in error.violations]
            raise type(error)(*renamed) from None

    async def find(self, request: TranslationRequest, caller: str) -> list[str]:
        """Return the language of each text, among those that can be translated to the request's target language.

        Raises:
            RequestError: no language can be translated, the identifier is not installed, or finding takes too long.
        """
        texts = request.texts
        candidates = self.find_candidates(request.model, request.target_language)
        if len(candidates) == 1:
            return [candidates[0]] * len(texts)
        async with self._loading:
            if self._identifier is None:
                self._identifier = await asyncio.to_thread(LanguageIdentifier)
            identifier = self._identifier

        def find(budget: Budget) -> list[str]:
            try:
                written = texts if request.format == Format.TEXT else [_TAG.sub(" ", text) for text in texts]
                return identifier.find(written, candidates, budget)
            except OverBudgetError:
                raise takes_too_long("text" if request.streamed else "texts", budget) from None

        work = sum([len(text.encode()) + _WORK_OF_A_TEXT for text in texts])
        return await self.pool.read(work, find, caller)


async def together(calls: Sequence[Coroutine[Any, Any, _Result]]) -> list[_Result]:
    """Return the results of calls that run at the same time. If one of them fails, the others are cancelled."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(call) for call in calls]
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]


def _renumbered(field: str, numbers: Sequence[int]) -> str:
    return re.sub(r"^texts\[(\d+)\]", lambda match: f"texts[{numbers[int(match[1])]}]", field)


def _cut_off_as(before: Translation, hypothesis: Hypothesis) -> Hypothesis:
    """Return a hypothesis of the second step. A translation of a text that was cut off is cut off."""
    if before.hypotheses[0].finish_reason == FinishReason.MAX_LENGTH:
        return replace(hypothesis, finish_reason=FinishReason.MAX_LENGTH)
    return hypothesis
