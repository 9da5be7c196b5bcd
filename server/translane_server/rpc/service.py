"""The translane.v1 service: it turns requests into sentences for the dispatcher, and results into answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import grpc

from translane.v1 import translation_pb2 as pb
from translane.v1.translation_pb2_grpc import TranslationServiceServicer
from translane_server.devices import Device
from translane_server.dispatch.dispatcher import Dispatcher
from translane_server.errors import ModelNotFoundError, UnavailableError
from translane_server.manifest import Manifest
from translane_server.metrics import Metrics
from translane_server.requests.limits import RequestLimits, shown
from translane_server.requests.resolved_options import Source
from translane_server.requests.responses import model_list, timing
from translane_server.requests.score import ScoreReader
from translane_server.requests.translate import PreparedRequest, TranslateReader
from translane_server.rpc.interceptors import note
from translane_server.rpc.streaming import StreamedSentence, stream_text
from translane_server.sentence import SentenceResult
from translane_server.text.tokenizer import Tokenizer

SERVICE_NAME = pb.DESCRIPTOR.services_by_name["TranslationService"].full_name

# How long a caller should wait before it tries again [seconds]: while the model loads, and while another server takes
# over from this server.
_RETRY_STARTING = 1.0
_RETRY_DRAINING = 1.0

# The maximum work that is done on the event loop [bytes of the request + tokens of the answer]. It takes less than a
# millisecond, and mostly less than handing the work to another thread and back.
_LITTLE = 1024

_Result = TypeVar("_Result")

Context = grpc.aio.ServicerContext[Any, Any]


@dataclass(frozen=True)
class ServedModel:
    """The served model, with its tokenizer and its device."""

    manifest: Manifest
    tokenizer: Tokenizer
    device: Device


class TranslationService(TranslationServiceServicer):
    """Answers the RPCs. Refuses translations before `open` and after `close`.

    Args:
        model: the served model.
        limits: limits of every request.
        metrics: takes the durations of requests and the number of generated tokens.
        executor: runs the work that takes too long for the event loop.
        log_texts: whether texts and translations are logged.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        model: ServedModel,
        limits: RequestLimits,
        metrics: Metrics,
        executor: Executor,
        *,
        log_texts: bool = False,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._model = model
        self._limits = limits
        self._translate = TranslateReader(model.manifest, model.tokenizer, limits)
        self._score = ScoreReader(model.manifest, model.tokenizer, limits)
        self._metrics = metrics
        self._executor = executor
        self._log_texts = log_texts
        self._clock = clock
        self._dispatcher: Dispatcher | None = None
        self._closed = False
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def open(self, dispatcher: Dispatcher) -> None:
        """Translate with `dispatcher` from now on."""
        self._dispatcher = dispatcher

    def close(self) -> None:
        """Refuse new translations from now on."""
        self._closed = True

    async def idle(self) -> None:
        """Wait until every translation that was accepted is answered."""
        await self._idle.wait()

    async def Translate(self, request: pb.TranslateRequest, context: Context) -> pb.TranslateResponse:  # noqa: ARG002, N802
        started = self._clock()
        note(texts=len(request.texts))
        self._check_model(request.model)
        with self._accepted() as dispatcher:
            prepared = await self._read(request, dispatcher)
            results = await dispatcher.decode(prepared.sentences, request.priority)
            generated = _generated_tokens(results)
            translations = await self._run(request.ByteSize() + generated, prepared.translations, results)
            response = pb.TranslateResponse(
                translations=translations, model=self._model.manifest.name, timing=self._timed(started, results)
            )
        self._tell(generated, request.texts, translations)
        return response

    async def TranslateStream(self, request: pb.TranslateStreamRequest, context: Context) -> None:  # noqa: N802
        started = self._clock()
        note(texts=1)
        self._check_model(request.model)

        async def send(delta: str) -> None:
            await context.write(pb.TranslateStreamResponse(text_delta=delta))

        with self._accepted() as dispatcher:
            prepared = await self._read(request, dispatcher)
            (text,) = prepared.texts
            gaps = text.split.target_gaps(prepared.target_language) if text.split else [""] * (len(text.sources) + 1)
            translations: list[pb.Translation] = []
            sentences = self._streamed(prepared, request.ByteSize(), translations)
            end = await stream_text(dispatcher, sentences, gaps, request.priority, send)
            generated = _generated_tokens(end.results)
            translation = prepared.translation(text, translations)
            await context.write(
                pb.TranslateStreamResponse(
                    text_delta=end.rest,
                    hypothesis=translation.hypotheses[0],
                    timing=self._timed(started, end.results),
                )
            )
        self._tell(generated, [request.text], [translation])

    async def Score(self, request: pb.ScoreRequest, context: Context) -> pb.ScoreResponse:  # noqa: ARG002, N802
        note(texts=len(request.inputs))
        self._check_model(request.model)
        with self._accepted() as dispatcher:
            dispatcher.check_room(self._score.check(request))
            prepared = await self._run(request.ByteSize(), self._score.read, request)
            sentences = prepared.sentences
            note(
                source_tokens=sum(len(sentence.source_ids) for sentence in sentences),
                target_tokens=sum(len(sentence.forced_ids) for sentence in sentences),
            )
            results = await dispatcher.decode(sentences)
            scores = self._score.scores(prepared, results, tokens=request.return_tokens)
        if self._log_texts:
            inputs = request.inputs
            note(source_texts=[each.source for each in inputs], translations=[each.target for each in inputs])
        return pb.ScoreResponse(scores=scores)

    async def ListModels(self, request: pb.ListModelsRequest, context: Context) -> pb.ListModelsResponse:  # noqa: ARG002, N802
        return model_list(self._model.manifest, self._model.device, self._limits)

    def _check_model(self, name: str) -> None:
        loaded = self._model.manifest.name
        if name not in ("", loaded):
            raise ModelNotFoundError(f"model: there is no model {shown(name)}; this server has {loaded}")

    @contextmanager
    def _accepted(self) -> Iterator[Dispatcher]:
        """Accept a request, which is then answered even if the server is closed meanwhile."""
        if self._closed:
            raise UnavailableError("the server is shutting down", retry_after=_RETRY_DRAINING)
        if self._dispatcher is None:
            raise UnavailableError("the server is starting", retry_after=_RETRY_STARTING)
        self._running += 1
        self._idle.clear()
        try:
            yield self._dispatcher
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()

    async def _read(
        self, request: pb.TranslateRequest | pb.TranslateStreamRequest, dispatcher: Dispatcher
    ) -> PreparedRequest:
        dispatcher.check_room(self._translate.check(request))
        prepared = await self._run(request.ByteSize(), self._translate.read, request)
        note(source_tokens=sum([len(sentence.source_ids) for sentence in prepared.sentences]))
        return prepared

    def _timed(self, started: float, results: Sequence[SentenceResult]) -> pb.Timing:
        """Record how long a request took until now, and return its timing."""
        seconds = self._clock() - started
        self._metrics.requests.observe(seconds)
        return timing(results, seconds)

    def _tell(self, generated: int, texts: Sequence[str], translations: Sequence[pb.Translation]) -> None:
        """Count and log what was generated."""
        self._metrics.generated_tokens.inc(generated)
        note(generated_tokens=generated)
        if self._log_texts:
            found = [hypothesis.text for translation in translations for hypothesis in translation.hypotheses]
            note(source_texts=list(texts), translations=found)

    def _streamed(
        self, prepared: PreparedRequest, size: int, translations: list[pb.Translation]
    ) -> list[StreamedSentence]:
        """Pair each sentence with its text functions. A sentence appends to `translations` when it ends."""
        builder = prepared.builder

        async def text(source: Source, result: SentenceResult) -> str:
            translations.append(await self._run(size, builder.translation, source, result))
            return translations[-1].hypotheses[0].text

        return [
            StreamedSentence(sentence, partial(builder.surfaces, source), partial(text, source))
            for sentence, source in zip(prepared.sentences, prepared.texts[0].sources, strict=True)
        ]

    async def _run(self, work: int, function: Callable[..., _Result], /, *arguments: object) -> _Result:
        """Call `function`, away from the event loop unless the work is little."""
        if work <= _LITTLE:
            return function(*arguments)
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *arguments)


def _generated_tokens(results: Sequence[SentenceResult]) -> int:
    return sum(len(each.token_ids) + each.is_complete for result in results for each in result.hypotheses)
