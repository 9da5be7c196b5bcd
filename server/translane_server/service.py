"""The translane.v1 service: a request of the protocol to one of the engine's, and the results back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol, TypeVar

import grpc

from translane.v1 import translation_pb2 as pb
from translane.v1.translation_pb2_grpc import TranslationServiceServicer
from translane_server import status
from translane_server.bundle import Manifest
from translane_server.errors import ModelNotFoundError, RequestError, UnavailableError
from translane_server.interceptors import note
from translane_server.metrics import Metrics
from translane_server.request import FinishReason, Hypothesis, Request, Sentence, SentenceResult, Timing
from translane_server.responses import model_list, timing, translations
from translane_server.tokenizer import Tokenizer
from translane_server.validation import RequestLimits, check_options, check_request, check_tokens, refuse, shown

SERVICE_NAME = pb.DESCRIPTOR.services_by_name["TranslationService"].full_name

# What a caller is told to wait before it tries again [seconds]: while the model loads, and while another server is
# to take over from this one.
_RETRY_STARTING = 1.0
_RETRY_DRAINING = 1.0

_NOTHING = SentenceResult((Hypothesis((), 0.0, FinishReason.END_OF_SENTENCE),), Timing(0.0, 0.0, 0.0))

_Argument = TypeVar("_Argument")
_Result = TypeVar("_Result")

Context = grpc.aio.ServicerContext[Any, Any]


class Translator(Protocol):
    """What the service needs of `engine.Engine`."""

    def submit(self, request: Request) -> None:
        """See `Engine.submit`."""

    def check_room(self, sentences: int) -> None:
        """See `Engine.check_room`."""

    def cancel(self, request: Request) -> None:
        """See `Engine.cancel`."""


@dataclass(frozen=True)
class ServedModel:
    """The model that is served, where it runs and what turns its text into tokens."""

    manifest: Manifest
    tokenizer: Tokenizer
    device: str


class TranslationService(TranslationServiceServicer):
    """Answers the RPCs. Refuses translations until `open`, and again from `close` on.

    Args:
        model: what translates.
        limits: what requests are held to.
        metrics: takes the duration of requests.
        executor: where tokens are made, away from the event loop.
        log_texts: whether the log gets texts and translations.
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
        self._metrics = metrics
        self._executor = executor
        self._log_texts = log_texts
        self._clock = clock
        self._engine: Translator | None = None
        self._closed = False
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def open(self, engine: Translator) -> None:
        """Translate with `engine` from now on."""
        self._engine = engine

    def close(self) -> None:
        """Refuse new translations from now on."""
        self._closed = True

    async def idle(self) -> None:
        """Wait until every translation that was accepted is answered."""
        await self._idle.wait()

    async def Translate(self, request: pb.TranslateRequest, context: Context) -> pb.TranslateResponse:  # noqa: ARG002, N802
        """See the protocol."""
        started = self._clock()
        note(texts=len(request.texts))
        self._check_model(request.model)
        with self._accepted() as engine:
            sources = await self._sources(engine, request)
            note(source_tokens=sum(map(len, sources)))
            results = await self._decode(engine, request, sources)
            texts = await self._run(
                self._model.tokenizer.decode, [h.token_ids for result in results for h in result.hypotheses]
            )
            seconds = self._clock() - started
            response = pb.TranslateResponse(
                translations=translations(results, texts, sources),
                model=self._model.manifest.name,
                timing=timing(results, seconds),
            )
        self._metrics.requests.observe(seconds)
        note(generated_tokens=sum(map(_generated_tokens, (result for result in results if result is not _NOTHING))))
        if self._log_texts:
            note(source_texts=list(request.texts), translations=texts)
        return response

    async def TranslateStream(self, request: pb.TranslateStreamRequest, context: Context) -> NoReturn:  # noqa: ARG002, N802
        """See the protocol."""
        await status.abort(context, status.unimplemented("TranslateStream"))

    async def Score(self, request: pb.ScoreRequest, context: Context) -> NoReturn:  # noqa: ARG002, N802
        """See the protocol."""
        await status.abort(context, status.unimplemented("Score"))

    async def ListModels(self, request: pb.ListModelsRequest, context: Context) -> pb.ListModelsResponse:  # noqa: ARG002, N802
        """See the protocol."""
        return model_list(self._model.manifest, self._model.device, self._limits)

    def _check_model(self, name: str) -> None:
        loaded = self._model.manifest.name
        if name not in ("", loaded):
            raise ModelNotFoundError(f"model: there is no model {shown(name)}; this server has {loaded}")

    @contextmanager
    def _accepted(self) -> Iterator[Translator]:
        """From here on the request is answered, whatever the server is told meanwhile."""
        if self._closed:
            raise UnavailableError("the server is shutting down", retry_after=_RETRY_DRAINING)
        if self._engine is None:
            raise UnavailableError("the server is starting", retry_after=_RETRY_STARTING)
        self._running += 1
        self._idle.clear()
        try:
            yield self._engine
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()

    async def _sources(self, engine: Translator, request: pb.TranslateRequest) -> list[list[int]]:
        """The checked request's texts as tokens."""
        manifest, limits = self._model.manifest, self._limits
        wrong = check_request(request, manifest.source_languages, manifest.target_languages, limits)
        unsupported = check_options(request.options)
        if any(violation.field.startswith("texts") for violation in wrong):  # not worth the work of counting tokens
            refuse(wrong, unsupported)
        engine.check_room(sum(map(bool, request.texts)))
        sources = await self._run(self._model.tokenizer.encode, list(request.texts))
        refuse([*wrong, *check_tokens(sources, limits.tokens.source)], unsupported)
        return sources

    async def _decode(
        self, engine: Translator, request: pb.TranslateRequest, sources: Sequence[Sequence[int]]
    ) -> list[SentenceResult]:
        """A result for each source. A text without tokens has an empty translation, which takes no engine."""
        options = request.options
        max_length = options.max_length if options.HasField("max_length") else self._limits.tokens.default_max_length
        sentences = [Sentence(source, max_length) for source in sources if source]
        decoded = iter(await _answer(engine, sentences, request.priority) if sentences else ())
        return [next(decoded) if source else _NOTHING for source in sources]

    async def _run(self, function: Callable[[_Argument], _Result], argument: _Argument) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, argument)


def _generated_tokens(result: SentenceResult) -> int:
    return sum(len(h.token_ids) + (h.finish_reason is FinishReason.END_OF_SENTENCE) for h in result.hypotheses)


async def _answer(engine: Translator, sentences: Sequence[Sentence], priority: int) -> tuple[SentenceResult, ...]:
    """Have `sentences` decoded.

    gRPC cancels the call's task when the caller goes or its deadline passes: then their rows are freed.

    Raises:
        RequestError: the engine refuses or fails.
    """
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[tuple[SentenceResult, ...] | RequestError] = loop.create_future()

    def settle(outcome: tuple[SentenceResult, ...] | RequestError) -> None:
        if not answered.done():
            answered.set_result(outcome)

    def on_done(outcome: tuple[SentenceResult, ...] | RequestError) -> None:
        loop.call_soon_threadsafe(settle, outcome)

    request = Request(sentences, on_done, priority)
    engine.submit(request)
    try:
        outcome = await answered
    except asyncio.CancelledError:
        engine.cancel(request)
        raise
    if isinstance(outcome, RequestError):
        raise outcome
    return outcome
