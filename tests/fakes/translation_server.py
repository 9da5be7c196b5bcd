"""A Translane server in this process that does what a test tells it."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, cast

import grpc
from google.protobuf import any_pb2
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_status import rpc_status

from helpers.file_server import wait_until
from translane.v1 import translation_pb2 as pb
from translane.v1 import translation_pb2_grpc

PATIENCE = 120
"""How long to wait for what has to happen, and on a busy machine may take its time [s]."""
Behaviour = Callable[[Any, grpc.ServicerContext], Any]
"""From a request to a response; to an iterable of responses where many are due."""


def translated(text: str) -> str:
    return f"<{text}>" if text else ""


def answer(request: pb.TranslateRequest) -> pb.TranslateResponse:
    return pb.TranslateResponse(
        translations=[
            pb.Translation(
                hypotheses=[
                    pb.Hypothesis(text=translated(text), score=-0.5, finish_reason=pb.FINISH_REASON_END_OF_SENTENCE)
                ],
                source_tokens=len(text),
            )
            for text in request.texts
        ],
        model="zh-en",
        model_versions={"zh-en": "2@5f1c0a9b3e21"},
        timing=pb.Timing(queue=Duration(nanos=500_000_000), total=Duration(seconds=2)),
    )


def streamed(request: pb.TranslateStreamRequest) -> Iterator[pb.TranslateStreamResponse]:
    """A message for each character, and the translation."""
    text = translated(request.text)
    for character in text:
        yield pb.TranslateStreamResponse(text_delta=character)
    yield pb.TranslateStreamResponse(
        hypothesis=pb.Hypothesis(text=text, score=-0.5, finish_reason=pb.FINISH_REASON_END_OF_SENTENCE),
        timing=pb.Timing(total=Duration(seconds=2)),
    )


def scored(request: pb.ScoreRequest) -> pb.ScoreResponse:
    """Each character of a target, and its end, has the probability 1/e."""
    return pb.ScoreResponse(
        model="zh-en",
        model_versions={"zh-en": "2@5f1c0a9b3e21"},
        scores=[
            pb.Score(
                total_log_prob=-len(pair.target) - 1.0,
                token_log_probs=[-1.0] * (len(pair.target) + 1),
                tokens=[*pair.target, "</s>"] if request.return_tokens else [],
            )
            for pair in request.inputs
        ],
    )


def documented(request: pb.TranslateDocumentRequest) -> Iterator[pb.TranslateDocumentResponse]:
    """Progress, the content in capital letters, byte for byte, and the end."""
    lines = request.content.count(b"\n") + 1
    for done in (0, lines):
        yield pb.TranslateDocumentResponse(progress=pb.DocumentProgress(texts_done=done, texts=lines))
    content = request.content.upper()
    for start in range(0, len(content), 3):
        yield pb.TranslateDocumentResponse(content=content[start : start + 3])
    end = pb.DocumentEnd(content_bytes=len(content), models=["zh-en"])
    end.notes.add(line=2, cut_sentences=1)
    end.notes.add(line=3, term=pb.TermReport(source="a", target="b", outcome=pb.TERM_OUTCOME_MISSED))
    yield pb.TranslateDocumentResponse(end=end)


ANSWERS: dict[type, Callable[[Any], Any]] = {
    pb.TranslateRequest: answer,
    pb.TranslateStreamRequest: streamed,
    pb.TranslateDocumentRequest: documented,
    pb.ScoreRequest: scored,
}


def answer_to(request: Any) -> Any:
    """The good answer to a request of any kind."""
    return ANSWERS[type(request)](request)


def texts_of(request: Any) -> list[str]:
    """The sources in a request of texts or pairs."""
    if isinstance(request, pb.TranslateStreamRequest):
        return [request.text]
    return [each.source for each in request.inputs] if isinstance(request, pb.ScoreRequest) else list(request.texts)


def breaks_off(count: int, behaviour: Behaviour) -> Behaviour:
    """A behaviour that streams `count` messages before it goes on as `behaviour` does."""

    def behave(request: pb.TranslateStreamRequest, context: grpc.ServicerContext) -> Iterator[Any]:
        yield from islice(streamed(request), count)
        yield from behaviour(request, context)

    return behave


def fails(code: grpc.StatusCode, message: str = "no", *details: Message) -> Behaviour:
    """A behaviour that answers an error of the richer error model, or a plain one without details."""

    def behave(request: Any, context: grpc.ServicerContext) -> Any:
        if not details:
            context.abort(code, message)
        packed = []
        for detail in details:
            packed.append(any_pb2.Any())
            packed[-1].Pack(detail)
        context.abort_with_status(
            rpc_status.to_status(status_pb2.Status(code=code.value[0], message=message, details=packed))
        )

    return behave


def reason(name: str, domain: str = "translane") -> error_details_pb2.ErrorInfo:
    return error_details_pb2.ErrorInfo(reason=name, domain=domain)


def retry_in(seconds: int, nanos: int = 0) -> error_details_pb2.RetryInfo:
    return error_details_pb2.RetryInfo(retry_delay=Duration(seconds=seconds, nanos=nanos))


def bad_fields(*fields: tuple[str, str]) -> error_details_pb2.BadRequest:
    violations = [error_details_pb2.BadRequest.FieldViolation(field=path, description=what) for path, what in fields]
    return error_details_pb2.BadRequest(field_violations=violations)


def refuses(*fields: tuple[str, str]) -> Behaviour:
    """A behaviour that names the fields at fault: the path of each, and what is wrong with it."""
    message = ", ".join(f"{path}: {what}" for path, what in fields)
    return fails(grpc.StatusCode.INVALID_ARGUMENT, message, reason("INVALID_FIELD"), bad_fields(*fields))


BROKEN = fails(grpc.StatusCode.INTERNAL, "broken", reason("INTERNAL"))
UNAVAILABLE = fails(grpc.StatusCode.UNAVAILABLE, "draining", reason("UNAVAILABLE"))
QUEUE_FULL = fails(grpc.StatusCode.RESOURCE_EXHAUSTED, "full", reason("QUEUE_FULL"), retry_in(2, 500_000_000))


@dataclass
class FakeServer(translation_pb2_grpc.TranslationServiceServicer):
    """Answers `translated` texts; the next calls follow `script` where it has behaviours left."""

    script: deque[Behaviour] = field(default_factory=deque)
    always: Behaviour | None = None
    limits: pb.Limits = field(
        default_factory=lambda: pb.Limits(
            max_request_texts=64, max_queue_size=256, max_beam_size=1, document_bytes=1000
        )
    )
    requests: list[Any] = field(default_factory=list)
    source_languages: tuple[str, ...] = ("zh-Hans", "zh-Hant")
    time_remaining: list[float] = field(default_factory=list)  # [s]; infinite where there is no deadline
    peers: set[str] = field(default_factory=set)  # addresses of the callers' connections
    listings: int = 0
    decoding_defaults: pb.DecodingOptions | None = None
    glossaries: Sequence[str] = ()
    running: int = 0
    most_running: int = 0
    cancelled: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)

    def start(
        self,
        credentials: grpc.ServerCredentials | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        options: Sequence[tuple[str, int]] = (),
    ) -> FakeServer:
        self._pool = ThreadPoolExecutor(16)
        self._lock = threading.Lock()
        self._server = grpc.server(self._pool, options=options)
        translation_pb2_grpc.add_TranslationServiceServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        checks = health.HealthServicer()
        checks.set("translane.v1.TranslationService", health_pb2.HealthCheckResponse.SERVING)
        health_pb2_grpc.add_HealthServicer_to_server(checks, self._server)
        if credentials is None:
            port = self._server.add_insecure_port(f"{host}:{port}")
        else:
            port = self._server.add_secure_port(f"{host}:{port}", credentials)
        self.address = f"{host}:{port}"
        self._server.start()
        return self

    def __enter__(self) -> FakeServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self.released.set()
        self._server.stop(0).wait()
        self._pool.shutdown()

    def by_text(self, **behaviours: Behaviour) -> None:
        """From now on, the behaviour of the first of these texts that a request holds; else a good answer."""

        def behave(request: Any, context: grpc.ServicerContext) -> Any:
            chosen = next((behaviours[text] for text in texts_of(request) if text in behaviours), None)
            return chosen(request, context) if chosen else answer_to(request)

        self.always = behave

    def hang(self, request: Any, context: grpc.ServicerContext) -> Any:
        """A behaviour that answers only when the test is over, and notes that the call was cancelled."""
        self._note_cancelling(context)
        self.released.wait(PATIENCE)
        return answer_to(request)

    def hang_after(self, count: int) -> Behaviour:
        """A behaviour that streams `count` messages and then hangs."""

        def behave(request: pb.TranslateStreamRequest, context: grpc.ServicerContext) -> Iterator[Any]:
            self._note_cancelling(context)
            yield from islice(streamed(request), count)
            self.released.wait(PATIENCE)

        return behave

    def _note_cancelling(self, context: grpc.ServicerContext) -> None:
        if not context.add_callback(self.cancelled.set):  # it is over already
            self.cancelled.set()

    def _answered(self, request: Any, context: grpc.ServicerContext) -> Any:
        with self._lock:
            self.requests.append(request)
            self.peers.add(context.peer())
            remaining = context.time_remaining()
            self.time_remaining.append(math.inf if remaining is None else remaining)
            behave = self.script.popleft() if self.script else self.always
            self.running += 1
            self.most_running = max(self.most_running, self.running)
        try:
            return behave(request, context) if behave else answer_to(request)
        finally:
            with self._lock:
                self.running -= 1

    def Translate(self, request: pb.TranslateRequest, context: grpc.ServicerContext) -> pb.TranslateResponse:  # noqa: N802
        return cast(pb.TranslateResponse, self._answered(request, context))

    def TranslateStream(  # noqa: N802
        self, request: pb.TranslateStreamRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.TranslateStreamResponse]:
        yield from self._answered(request, context)

    def TranslateDocument(  # noqa: N802
        self, request: pb.TranslateDocumentRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.TranslateDocumentResponse]:
        yield from self._answered(request, context)

    def Score(self, request: pb.ScoreRequest, context: grpc.ServicerContext) -> pb.ScoreResponse:  # noqa: N802
        return cast(pb.ScoreResponse, self._answered(request, context))

    def ListModels(self, request: pb.ListModelsRequest, context: grpc.ServicerContext) -> pb.ListModelsResponse:  # noqa: N802
        self.listings += 1
        return pb.ListModelsResponse(
            models=[
                pb.Model(
                    name="zh-en",
                    version="1.2",
                    source_languages=self.source_languages,
                    target_languages=["en"],
                    precision="fp32",
                    device="cpu",
                    license="CC-BY-2.0",
                    parameters=9_876_543,
                    max_source_tokens=256,
                    max_target_tokens=128,
                    default_max_length=100,
                    decoding_defaults=self.decoding_defaults,
                    glossaries=self.glossaries,
                )
            ],
            server_version="0.1.0",
            limits=self.limits,
        )

    def wait_for_requests(self, count: int) -> None:
        """Returns once `count` calls have arrived."""
        wait_until(lambda: len(self.requests) >= count, PATIENCE)

    def sizes(self) -> Sequence[int]:
        return [len(texts_of(request)) for request in self.requests]
