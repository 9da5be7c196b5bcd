"""The translane.v1 service: it turns requests into sentences for the dispatcher, and results into answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import grpc

from translane.v1 import translation_pb2 as pb
from translane.v1.translation_pb2_grpc import TranslationServiceServicer
from translane_server.errors import shutting_down
from translane_server.models.loaded_model import LoadedModel
from translane_server.models.pivots import Pivot
from translane_server.models.registry import Registry
from translane_server.models.served_model import ServedModel
from translane_server.observation.call_trace import ModelRun, current_trace, exemplar
from translane_server.requests.answers import Recalled
from translane_server.requests.limits import TranslationRequest, check_names
from translane_server.requests.model_list import model_list
from translane_server.requests.prepared import PreparedRequest
from translane_server.requests.source import Source
from translane_server.requests.timings import timing
from translane_server.rpc.current_call import caller, note, pay, unpaid
from translane_server.rpc.detours import Detours, Writer
from translane_server.rpc.streaming import StreamedSentence, stream_text
from translane_server.rpc.text_workers import LITTLE_WORK, TextWorkers
from translane_server.sentence import CertainTokens, Sentence, SentenceResult
from translane_server.text.language_tags import is_auto

SERVICE_NAME = pb.DESCRIPTOR.services_by_name["TranslationService"].full_name

Context = grpc.aio.ServicerContext[Any, Any]


class TranslationService(TranslationServiceServicer):
    """Answers the RPCs. Refuses translations after `close`.

    Args:
        models: the models of the server.
        texts_per_request: the setting `max_request_texts`, for ListModels.
        workers: turn texts into tokens, and tokens into texts.
        log_texts: whether texts and translations are logged.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        models: Registry,
        texts_per_request: int,
        workers: TextWorkers,
        *,
        log_texts: bool = False,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._models = models
        self._texts_per_request = texts_per_request
        self._workers = workers
        self._log_texts = log_texts
        self._clock = clock
        self._closed = False
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._detours = Detours(models, self, workers, texts_per_request, clock)

    def close(self) -> None:
        """Refuse new translations from now on."""
        self._closed = True

    async def idle(self) -> None:
        """Wait until every translation that was accepted is answered."""
        await self._idle.wait()

    async def Translate(self, request: pb.TranslateRequest, context: Context) -> pb.TranslateResponse:  # noqa: ARG002, N802
        note(texts=len(request.texts))
        route = self._route(request)
        if isinstance(route, ServedModel):
            return await self.translate(request, route)
        async with self._detour():
            response = await self._detours.translate(request, route)
        self._log(request.texts, response.translations)
        return response

    async def TranslateStream(self, request: pb.TranslateStreamRequest, context: Context) -> None:  # noqa: N802
        note(texts=1)
        route = self._route(request)
        if isinstance(route, ServedModel):
            await self.stream(request, route, context)
            return
        async with self._detour():
            await self._detours.stream(request, route, context)
        if self._log_texts:
            note(source_texts=[request.text])

    async def check(self, request: pb.TranslateRequest, served: ServedModel) -> None:
        """See `Steps`."""
        with unpaid():
            async with _Accepted(self, served) as model:
                model.dispatcher.check_room(model.translate.check(request), caller())
                await self._read(request, model)

    async def translate(self, request: pb.TranslateRequest, served: ServedModel) -> pb.TranslateResponse:
        """See `Steps`."""
        started = self._clock()
        async with _Accepted(self, served) as model:
            reading = self._clock()
            recalled = self._recall(request, model)
            prepared = await self._read(recalled.request, model)
            submitted = self._clock()
            results = await model.dispatcher.decode(prepared.sentences, request.priority, caller())
            generated = _generated_tokens(results)
            work = _work(recalled.request) + generated + recalled.size
            translations = await self._workers.build(
                work, lambda budget: recalled.whole(prepared.translations(results, budget)), caller()
            )
            recalled.keep()
            response = pb.TranslateResponse(
                translations=translations, model=model.name, timing=self._timed(model, started, results, recalled)
            )
            self._trace(model, (started, reading, submitted), prepared.sentences, results)
        self._tell(model, generated, request.texts, translations)
        return response

    async def stream(self, request: pb.TranslateStreamRequest, served: ServedModel, context: Writer) -> None:
        """See `Steps`."""
        started = self._clock()

        async def send(delta: str) -> None:
            await context.write(pb.TranslateStreamResponse(text_delta=delta))

        async with _Accepted(self, served) as model:
            reading = self._clock()
            recalled = self._recall(request, model)
            prepared = await self._read(recalled.request, model)
            (text,) = prepared.texts
            gaps = text.stream_gaps(prepared.target_language)
            is_sent_whole = gaps is None or recalled.count > 0
            translations: list[pb.Translation] = []
            work = _work(recalled.request)
            sentences = self._streamed(prepared, work, translations, is_sent_whole=is_sent_whole)
            gaps = gaps or [""] * (len(sentences) + 1)
            submitted = self._clock()
            end = await stream_text(model.dispatcher, sentences, gaps, send, priority=request.priority, caller=caller())
            generated = _generated_tokens(end.results)
            (translation,) = await self._workers.build(
                work + generated + recalled.size,
                lambda _budget: recalled.whole([prepared.translation(text, translations)]),
                caller(),
            )
            recalled.keep()
            await context.write(
                pb.TranslateStreamResponse(
                    text_delta=translation.hypotheses[0].text if is_sent_whole else end.rest,
                    hypothesis=translation.hypotheses[0],
                    timing=self._timed(model, started, end.results, recalled),
                    treatment=translation.treatment if translation.HasField("treatment") else None,
                )
            )
            self._trace(model, (started, reading, submitted), prepared.sentences, end.results)
        self._tell(model, generated, [request.text], [translation])

    async def Score(self, request: pb.ScoreRequest, context: Context) -> pb.ScoreResponse:  # noqa: ARG002, N802
        note(texts=len(request.inputs))
        check_names(request)
        served = self._models.choose(request.model, request.source_language, request.target_language)
        started = self._clock()
        async with _Accepted(self, self._open(served)) as model:
            reading = self._clock()
            count = model.score.check(request)
            model.dispatcher.check_room(count, caller())
            pay(count)
            prepared = await self._workers.read(request.ByteSize(), partial(model.score.read, request), caller())
            sentences = prepared.sentences
            target_tokens = sum(len(sentence.forced_ids) for sentence in sentences)
            note(
                source_tokens=sum(len(sentence.source_ids) for sentence in sentences),
                target_tokens=target_tokens,
            )
            submitted = self._clock()
            results = await model.dispatcher.decode(sentences, caller=caller())
            scores = await self._workers.build(
                request.ByteSize() + target_tokens,
                partial(model.score.scores, prepared, results, request.return_tokens),
                caller(),
            )
            self._trace(model, (started, reading, submitted), sentences, results)
        if self._log_texts:
            inputs = request.inputs
            note(source_texts=[each.source for each in inputs], translations=[each.target for each in inputs])
        return pb.ScoreResponse(scores=scores)

    async def ListModels(self, request: pb.ListModelsRequest, context: Context) -> pb.ListModelsResponse:  # noqa: ARG002, N802
        return model_list(self._models.messages(), self._texts_per_request)

    def _route(self, request: TranslationRequest) -> ServedModel | Pivot | None:
        """Return the model, or the two models, that a request is for; None if its language is to be found first."""
        check_names(request)
        if is_auto(request.source_language):
            return None
        route = self._models.route(request.model, request.source_language, request.target_language)
        return self._open(route) if isinstance(route, ServedModel) else route

    def _open(self, served: ServedModel) -> ServedModel:
        """Return a request's model, unless the server closes."""
        note(model=served.name)
        if self._closed:
            raise shutting_down()
        return served

    @asynccontextmanager
    async def _detour(self) -> AsyncIterator[None]:
        """Accept a request of several steps, which are all answered even if the server closes meanwhile."""
        if self._closed:
            raise shutting_down()
        self.begin_request()
        try:
            yield
        finally:
            self.end_request()

    def begin_request(self) -> None:
        """Count an accepted request. `idle` waits until `end_request` is called for it."""
        self._running += 1
        self._idle.clear()

    def end_request(self) -> None:
        """Count a request no longer."""
        self._running -= 1
        if not self._running:
            self._idle.set()

    def _recall(self, request: TranslationRequest, model: LoadedModel) -> Recalled:
        """Check the sizes of a request, let it pay, and find what is known of it. A text that is known pays, too."""
        count = model.translate.check(request)
        recalled = model.answers.recall(request, caller()) if model.answers else Recalled(request)
        if unknown := count - recalled.count:
            model.dispatcher.check_room(unknown, caller())
        pay(count)
        return recalled

    async def _read(self, request: TranslationRequest, model: LoadedModel) -> PreparedRequest:
        """Turn a request whose sizes are checked into sentences."""
        count = len(request.texts) if isinstance(request, pb.TranslateRequest) else 1
        prepared = await self._workers.read(_work(request), partial(model.translate.read, request), caller())
        if (more := len(prepared.sentences) - count) > 0:  # texts were cut
            pay(more)
        sentences = prepared.sentences
        note(sentences=len(sentences), source_tokens=sum([len(sentence.source_ids) for sentence in sentences]))
        return prepared

    def _timed(
        self, model: LoadedModel, started: float, results: Sequence[SentenceResult], recalled: Recalled
    ) -> pb.Timing:
        """Record how long a request took until now, and return its timing."""
        if model.answers:
            note(cached_texts=recalled.count)
        seconds = self._clock() - started
        model.metrics.requests.observe(seconds, exemplar())
        return timing(results, seconds, recalled.count)

    def _trace(
        self,
        model: LoadedModel,
        times: tuple[float, float, float],
        sentences: Sequence[Sentence],
        results: Sequence[SentenceResult],
    ) -> None:
        """Record what a model did in the trace of the current call. The times are the first three of `ModelRun`."""
        if trace := current_trace():
            version = model.manifest.version
            trace.add(ModelRun(model.name, version, *times, self._clock(), sentences, results))

    def _tell(
        self, model: LoadedModel, generated: int, texts: Sequence[str], translations: Sequence[pb.Translation]
    ) -> None:
        """Count and log what was generated."""
        model.metrics.generated_tokens.inc(generated)
        note(generated_tokens=generated)
        self._log(texts, translations)

    def _log(self, texts: Sequence[str], translations: Sequence[pb.Translation]) -> None:
        """Log the texts of a request and their translations, if this is wanted."""
        if self._log_texts:
            found = [hypothesis.text for translation in translations for hypothesis in translation.hypotheses]
            note(source_texts=list(texts), translations=found)

    def _streamed(
        self, prepared: PreparedRequest, size: int, translations: list[pb.Translation], *, is_sent_whole: bool
    ) -> list[StreamedSentence]:
        """Pair each sentence with its text functions. A sentence appends to `translations` when it ends.

        A sentence from which something was taken out is sent when it ends, because the places of what was taken out are
        known only then. If the whole text `is_sent_whole`, its sentences send nothing.
        """
        builder = prepared.builder

        async def text(source: Source, result: SentenceResult) -> str:
            built = await self._workers.build(size, lambda _budget: builder.translation(source, result), caller())
            translations.append(built)
            return "" if is_sent_whole else translations[-1].hypotheses[0].text

        return [
            StreamedSentence(
                sentence,
                partial(builder.surfaces, source) if source.marked is None else _nothing,
                partial(text, source),
            )
            for sentence, source in zip(prepared.sentences, prepared.texts[0].sources, strict=True)
        ]


class _Accepted:
    """Counts a request at the service and at the version of the model that it uses, from its start to its end.

    A class, because a generator as context manager would cost each request some microseconds more.
    """

    __slots__ = ("_model", "_served", "_service")

    def __init__(self, service: TranslationService, served: ServedModel) -> None:
        self._service = service
        self._served = served
        self._model: LoadedModel | None = None

    async def __aenter__(self) -> LoadedModel:
        self._service.begin_request()
        try:
            self._model = model = self._served.ready or await self._served.wait_until_ready()
        except BaseException:
            self._service.end_request()
            raise
        model.begin_request()
        return model

    async def __aexit__(self, *exception: object) -> None:
        assert self._model is not None
        self._model.end_request()
        self._service.end_request()


def _work(request: TranslationRequest) -> int:
    """Return the size of a request [bytes], or more: markup and patterns take longer than the event loop may wait."""
    size = request.ByteSize()
    return max(size, LITTLE_WORK + 1) if request.format or request.options.preserve else size


def _nothing(_tokens: CertainTokens) -> Sequence[bytes]:
    return ()


def _generated_tokens(results: Sequence[SentenceResult]) -> int:
    return sum(len(each.token_ids) + each.is_complete for result in results for each in result.hypotheses)
