"""Translates, streams and scores texts with one version of a model."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from translane.options import Format
from translane.requests import ScoringRequest, TranslationRequest
from translane.results import Delta, Scores, StreamedTranslation, Timing, Translation, Translations
from translane_server.bundle.manifest import Manifest
from translane_server.core.budget import Budget
from translane_server.engine.sequence import CommittedTokens, Sentence, SentenceResult
from translane_server.observation.metrics import ModelMetrics
from translane_server.observation.tracing import CallTrace, SentenceRun
from translane_server.text.glossaries import StoredGlossaries
from translane_server.text.tokenizer import Detokenizer, Tokenizer
from translane_server.translation.cache import Recalled, TranslationCache
from translane_server.translation.limits import RequestLimits, option_characters
from translane_server.translation.plan import RequestPlan, Segment
from translane_server.translation.reader import TranslateReader
from translane_server.translation.score import ScoreReader
from translane_server.translation.second_decoding import SecondDecoding
from translane_server.translation.tokenizer_pool import LITTLE_WORK, TokenizerPool
from translane_server.translation.translations import (
    PreparedRequest,
    generated_tokens,
    request_timing,
    surfaces,
    translation_of,
)
from translane_server.workers.dispatcher import Dispatcher

_TEXT: str = Format.TEXT


def _nothing(*_arguments: Any, **_named: Any) -> None:
    pass


@dataclass(slots=True)
class Ticket:
    """Who asks, how urgent it is, and what it costs. By default nothing is paid."""

    caller: str = ""  # the one who asks. Callers get equal shares.
    priority: int = 0  # sentences of a higher priority enter the batch first
    # takes sentences from the caller's quota; raises a `RequestError` if there are not enough
    pay: Callable[..., None] = _nothing
    note: Callable[..., None] = _nothing  # is told facts about the request, for its line in the log
    # is told the models of a request whose languages had to be found
    count_in: Callable[[Sequence[ModelMetrics]], None] = _nothing
    trace: CallTrace | None = None  # the trace of the call that asks; None without one
    most_sentences: int = sys.maxsize  # how many sentences the caller may have paid for at a time
    give_back: Callable[[int], None] = _nothing  # gives sentences back to the caller's quota before the call ends
    progress: Callable[[], None] = _nothing  # is told that a long call goes on

    def paid(self) -> Ticket:
        """Return a ticket for a step whose sentences were paid for in the step before."""
        return replace(self, pay=_nothing)


FREE = Ticket()


class Translates(Protocol):
    """Translates requests: with one model, with two, or with one for each language."""

    @property
    def name(self) -> str:
        """The name of the model, or the names of both; empty if the texts decide."""

    @property
    def metrics(self) -> Sequence[ModelMetrics]:
        """Where its requests are counted; empty if the texts decide."""

    async def translate(self, request: TranslationRequest, ticket: Ticket = FREE) -> Translations:
        """Translate texts. RequestError: the request is refused, or decoding fails."""

    def stream(self, request: TranslationRequest, ticket: Ticket = FREE) -> AsyncGenerator[Delta]:
        """Translate the one text of a request, and yield the translation while it is decoded.

        Raises:
            RequestError: the request is refused, or decoding fails.
        """


class Translator:
    """Translates with one version of a model. All calls come from one event loop.

    The name is that under which the model is served, and the version is told in responses. Whoever makes the dispatcher
    starts and stops it. The `stored` glossaries are other ones after a change.
    """

    def __init__(
        self,
        name: str,
        manifest: Manifest,
        tokenizer: Tokenizer,
        limits: RequestLimits,
        dispatcher: Dispatcher,
        pool: TokenizerPool,
        metrics: ModelMetrics,
        *,
        version: str = "",
        stored: Callable[[], StoredGlossaries] = StoredGlossaries,
        cache: TranslationCache | None = None,
    ) -> None:
        self.name = name
        self._versions = {name: version}
        self._reader = TranslateReader(manifest, tokenizer, limits, stored)
        self._scores = ScoreReader(manifest, tokenizer, limits)
        self._dispatcher = dispatcher
        self._pool = pool
        self._metrics = metrics
        self.cache = cache

    async def check(self, request: TranslationRequest, ticket: Ticket = FREE) -> None:
        """Refuse a request whose options are wrong, or for which the queue has no room. Nothing is paid.

        Raises:
            RequestError: the request is refused.
        """
        self._dispatcher.check_room(self._reader.check(request), ticket.caller)
        await self._read(request, ticket.paid())

    async def translate(
        self, request: TranslationRequest, ticket: Ticket = FREE, started: float | None = None
    ) -> Translations:
        """See `Translates`. `started` is when the request was accepted; by default now."""
        reading = time.perf_counter()
        recalled, prepared, work = await self._prepared(request, ticket)
        submitted = time.perf_counter()
        decode = partial(self._dispatcher.decode, priority=ticket.priority, caller=ticket.caller)
        results: Sequence[SentenceResult] = await decode(prepared.sentences)
        generated = generated_tokens(results)
        if prepared.has_to_keep:
            segments = [segment for text in prepared.texts for segment in text.segments]
            second = SecondDecoding(prepared.plan, decode, self._pool, ticket.caller)
            results = await second.chosen(segments, results)
            generated += second.generated

        def build(budget: Budget) -> list[Translation]:
            translations = prepared.translations(results, budget)
            return recalled.whole(translations, prepared.unsettled) if recalled else translations

        size = recalled.size if recalled else 0
        translations = await self._pool.build(work + generated + size, build, ticket.caller)
        times = (reading if started is None else started, reading, submitted)
        timing = self._finished(times, prepared.sentences, results, generated, recalled, ticket)
        return Translations(translations, (self.name,), timing, self._versions)

    async def stream(
        self, request: TranslationRequest, ticket: Ticket = FREE, started: float | None = None
    ) -> AsyncGenerator[Delta]:
        """See `Translates`. `started` is when the request was accepted; by default now.

        The sentences of the text decode at the same time, and their texts are sent in order, each part as soon as it is
        certain. A sentence from which something was taken out is sent when it ends, because the places of what was
        taken out are known only then. A caller who reads slowly gets larger deltas. Slow callers slow down no worker
        and use no more memory. If the generator is closed early, the rows are freed.
        """
        reading = time.perf_counter()
        recalled, prepared, work = await self._prepared(request, ticket)
        plan, (text,) = prepared.plan, prepared.texts
        gaps = text.stream_gaps(plan.target_language)
        is_sent_whole = gaps is None or (recalled is not None and recalled.count > 0)
        pending, *gaps_after = [""] * (len(text.segments) + 1) if gaps is None or is_sent_whole else gaps
        translations: list[Translation] = []
        results: list[SentenceResult] = []
        submitted = time.perf_counter()
        decode = partial(self._dispatcher.decode, priority=ticket.priority, caller=ticket.caller)
        second, generated = SecondDecoding(plan, decode, self._pool, ticket.caller), 0
        news = self._dispatcher.stream(prepared.sentences, ticket.priority, ticket.caller)
        async with aclosing(news):
            for segment, gap in zip(text.segments, gaps_after, strict=True):
                detokenizer = Detokenizer()
                sent: list[int] = []  # tokens
                is_live = not is_sent_whole and segment.marked is None
                while isinstance(event := await anext(news), CommittedTokens):
                    if not is_live:
                        continue
                    if delta := detokenizer.push(surfaces(plan, segment, event, sent)):
                        yield Delta(pending + delta)
                        pending = ""
                    sent += event.token_ids
                generated += generated_tokens([event])
                if segment.has_to_keep:
                    if is_live:
                        event = await second.continued(segment, event)
                    else:
                        (event,) = await second.chosen([segment], [event])
                results.append(event)
                build = partial(_sentence, plan, segment, event)
                translations.append(await self._pool.build(work, build, ticket.caller))
                if not is_sent_whole:
                    pending += detokenizer.finish(translations[-1].text)
                if pending and len(results) < len(text.segments):
                    yield Delta(pending)
                    pending = ""
                pending += gap
        generated += second.generated

        def build_whole(_budget: Budget) -> Translation:
            whole = prepared.translation(text, translations)
            return recalled.whole([whole], prepared.unsettled)[0] if recalled else whole

        size = recalled.size if recalled else 0
        translation = await self._pool.build(work + generated + size, build_whole, ticket.caller)
        hypothesis = translation.hypotheses[0]
        times = (reading if started is None else started, reading, submitted)
        timing = self._finished(times, prepared.sentences, results, generated, recalled, ticket)
        yield Delta(
            hypothesis.text if is_sent_whole else pending,
            StreamedTranslation(hypothesis, timing, translation.treatment, (self.name,), self._versions),
        )

    async def score(self, request: ScoringRequest, ticket: Ticket = FREE, started: float | None = None) -> Scores:
        """Return how probable the model finds the translations of a request. `started` is as in `translate`.

        Raises:
            RequestError: the request is refused, or decoding fails.
        """
        reading = time.perf_counter()
        count = self._scores.check(request)
        self._dispatcher.check_room(count, ticket.caller)
        ticket.pay(count)
        size = sum([len(source.encode()) + len(target.encode()) for source, target in request.inputs])
        prepared = await self._pool.read(size, partial(self._scores.read, request), ticket.caller)
        sentences = prepared.sentences
        target_tokens = sum(len(sentence.forced_ids) for sentence in sentences)
        ticket.note(source_tokens=sum(len(sentence.source_ids) for sentence in sentences), target_tokens=target_tokens)
        submitted = time.perf_counter()
        results = await self._dispatcher.decode(sentences, ticket.priority, ticket.caller)
        build = partial(prepared.scores, results, request.return_tokens)
        scores = await self._pool.build(size + target_tokens, build, ticket.caller)
        started = reading if started is None else started
        if ticket.trace:
            self._trace(ticket.trace, (started, reading, submitted), sentences, results)
        timing = request_timing([each.timing for each in results], time.perf_counter() - started)
        return Scores(scores, self.name, timing, self._versions)

    async def _prepared(
        self, request: TranslationRequest, ticket: Ticket
    ) -> tuple[Recalled | None, PreparedRequest, int]:
        """Check the sizes of a request, let it pay, find what is known of it, and `_read` the rest.

        A text that is known pays, too.
        """
        count = self._reader.check(request)
        recalled = self.cache.recall(request, ticket.caller) if self.cache else None
        if unknown := count - (recalled.count if recalled else 0):
            self._dispatcher.check_room(unknown, ticket.caller)
        ticket.pay(count)
        return recalled, *await self._read(recalled.request if recalled else request, ticket)

    async def _read(self, request: TranslationRequest, ticket: Ticket) -> tuple[PreparedRequest, int]:
        """Turn a request whose sizes are checked into sentences. Return how much work it is [bytes], too."""
        options, texts = request.options, request.texts
        work = sum([len(text.encode()) for text in texts]) + option_characters(options)
        if options.preserve or request.format != _TEXT:  # these take longer than the event loop may wait
            work = max(work, LITTLE_WORK + 1)
        prepared = await self._pool.read(work, partial(self._reader.read, request), ticket.caller)
        sentences = prepared.sentences
        if (more := len(sentences) - len(texts)) > 0:  # texts were cut
            ticket.pay(more)
        ticket.note(sentences=len(sentences), source_tokens=sum([len(sentence.source_ids) for sentence in sentences]))
        return prepared, work

    def _finished(
        self,
        times: tuple[float, float, float],
        sentences: Sequence[Sentence],
        results: Sequence[SentenceResult],
        generated: int,
        recalled: Recalled | None,
        ticket: Ticket,
    ) -> Timing:
        """Keep, count, log and trace what was translated, and return its timing. For `times` see `_trace`."""
        cached = recalled.count if recalled else 0
        if recalled:
            recalled.keep()
        if self.cache:
            ticket.note(cached_texts=cached)
        seconds = time.perf_counter() - times[0]
        self._metrics.generated_tokens.value += generated
        ticket.note(generated_tokens=generated)
        if ticket.trace:
            self._trace(ticket.trace, times, sentences, results)
        return request_timing([each.timing for each in results], seconds, cached)

    def _trace(
        self,
        trace: CallTrace,
        times: tuple[float, float, float],
        sentences: Sequence[Sentence],
        results: Sequence[SentenceResult],
    ) -> None:
        """Record what the model did in the trace of the call. The times are the first three of `CallTrace.add`."""
        if trace.is_recorded:
            runs = [
                SentenceRun(*result.timing, len(sentence.source_ids), sentence.options.rows, generated_tokens([result]))
                for sentence, result in zip(sentences, results, strict=True)
            ]
            trace.add(self.name, self._versions[self.name], runs, *times, time.perf_counter())


def _sentence(plan: RequestPlan, segment: Segment, result: SentenceResult, _budget: Budget) -> Translation:
    return translation_of(plan, segment, result)
