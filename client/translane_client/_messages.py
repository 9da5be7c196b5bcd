"""Requests built and responses parsed: all that is known of the wire format."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from translane.v1 import translation_pb2 as pb
from translane.v1 import translation_pb2_grpc
from translane_client.errors import FieldViolation, Internal, InvalidArgument
from translane_client.types import (
    AlignmentPoint,
    FinishReason,
    Hypothesis,
    Limits,
    ModelInfo,
    ServerInfo,
    Timing,
    Translation,
)

Answer = TypeVar("Answer")

_FINISH_REASONS = {
    pb.FINISH_REASON_END_OF_SENTENCE: FinishReason.END_OF_SENTENCE,
    pb.FINISH_REASON_MAX_LENGTH: FinishReason.MAX_LENGTH,
}


@dataclass(frozen=True, slots=True)
class Batch:
    """Texts that travel in one request."""

    texts: Sequence[str]
    offset: int
    """Index of the first one among all the caller's texts."""


@dataclass(frozen=True, slots=True)
class Call(Generic[Answer]):
    """One request, the method it goes to, and how to read the response."""

    method: str
    request: Message
    parse: Callable[[Any], Answer]
    offset: int = 0
    """Index of the request's first text among all the caller's texts."""


def stub_of(channel: Any) -> Any:
    """The generated stub, over a channel of grpc or grpc.aio."""
    return translation_pb2_grpc.TranslationServiceStub(channel)  # type: ignore[no-untyped-call]  # generated


def server_call() -> Call[ServerInfo]:
    """The call that asks for the models and limits."""
    return Call("ListModels", pb.ListModelsRequest(), _server_info)


def translate_call(settings: pb.TranslateRequest, batch: Batch) -> Call[list[Translation]]:
    """The call that translates `batch` with everything else as in `settings`.

    Raises:
        TypeError: a text is not a str.
        InvalidArgument: a text holds a lone surrogate, which no encoding of Unicode can carry.
    """
    request = pb.TranslateRequest()
    request.CopyFrom(settings)
    for index, text in enumerate(batch.texts, start=batch.offset):
        if not isinstance(text, str):
            raise TypeError(f"texts[{index}] must be a str, not {type(text).__name__}")
        try:
            request.texts.append(text)
        except UnicodeEncodeError as error:
            violation = FieldViolation(f"texts[{index}]", f"not valid Unicode: {error.reason}")
            raise InvalidArgument(
                f"{violation.field} is {violation.description}", reason="INVALID_FIELD", violations=(violation,)
            ) from error

    def parse(response: pb.TranslateResponse) -> list[Translation]:
        return list(_translations(response, expected=len(batch.texts)))

    return Call("Translate", request, parse, batch.offset)


def _translations(response: pb.TranslateResponse, expected: int) -> Iterator[Translation]:
    if len(response.translations) != expected:
        raise Internal(f"the server answered {len(response.translations)} translations to {expected} texts")
    timing = _timing(response.timing) if response.HasField("timing") else None
    for translation in response.translations:
        if not translation.hypotheses:
            raise Internal("the server answered a translation without a hypothesis")
        hypotheses = tuple(_hypothesis(hypothesis) for hypothesis in translation.hypotheses)
        yield Translation(hypotheses, translation.source_tokens, response.model, timing)


def _hypothesis(hypothesis: pb.Hypothesis) -> Hypothesis:
    return Hypothesis(
        text=hypothesis.text,
        score=hypothesis.score,
        finish_reason=_FINISH_REASONS.get(hypothesis.finish_reason, FinishReason.UNSPECIFIED),
        tokens=tuple(hypothesis.tokens),
        token_log_probs=tuple(hypothesis.token_log_probs),
        alignment=tuple(
            AlignmentPoint(point.source_token, point.target_token, point.weight)
            for point in hypothesis.alignment.points
        ),
    )


def _timing(timing: pb.Timing) -> Timing:
    return Timing(
        queue=_seconds(timing.queue),
        encode=_seconds(timing.encode),
        decode=_seconds(timing.decode),
        total=_seconds(timing.total),
    )


def _seconds(duration: Duration) -> float:
    return duration.seconds + duration.nanos / 1e9


def _server_info(response: pb.ListModelsResponse) -> ServerInfo:
    limits = response.limits
    return ServerInfo(
        version=response.server_version,
        limits=Limits(limits.texts_per_request, limits.sentences_waiting, limits.beam_size),
        models=tuple(_model_info(model) for model in response.models),
    )


def _model_info(model: pb.Model) -> ModelInfo:
    return ModelInfo(
        name=model.name,
        version=model.version,
        source_languages=tuple(model.source_languages),
        target_languages=tuple(model.target_languages),
        precision=model.precision,
        device=model.device,
        license=model.license,
        parameters=model.parameters,
        max_source_tokens=model.max_source_tokens,
        max_target_tokens=model.max_target_tokens,
        default_max_length=model.default_max_length,
    )
