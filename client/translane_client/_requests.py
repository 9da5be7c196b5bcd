"""Requests built and responses parsed: all that is known of the wire format."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from translane.v1 import translation_pb2 as pb
from translane.v1 import translation_pb2_grpc
from translane_client.errors import FieldViolation, Internal, InvalidArgument
from translane_client.options import options_message
from translane_client.types import (
    AlignmentPoint,
    FinishReason,
    Hypothesis,
    Limits,
    ModelInfo,
    Score,
    ServerInfo,
    StreamedTranslation,
    Timing,
    Translation,
)

Item = TypeVar("Item")
Answer = TypeVar("Answer")

_FINISH_REASONS = {
    pb.FINISH_REASON_END_OF_SENTENCE: FinishReason.END_OF_SENTENCE,
    pb.FINISH_REASON_MAX_LENGTH: FinishReason.MAX_LENGTH,
}


@dataclass(frozen=True, slots=True)
class Batch(Generic[Item]):
    """What travels in one request."""

    items: Sequence[Item]
    offset: int
    """Index of the first one among all the caller's items."""


@dataclass(frozen=True, slots=True)
class Call(Generic[Answer]):
    """One request, the method it goes to, and how to read the response."""

    method: str
    request: Message
    parse: Callable[[Any], Answer]
    """Reads the response, or each message of a response of many."""
    offset: int = 0
    """Index of the request's first item among all the caller's items."""


@dataclass(frozen=True, slots=True)
class Job(Generic[Item, Answer]):
    """What is done with each item of a list."""

    call: Callable[[Batch[Item]], Call[list[Answer]]]
    """The call that does it with a batch: one answer to each item."""
    size_of: Callable[[Item], int]
    """UTF-8 bytes of an item; 0 for one that `call` refuses anyway."""


def stub_of(channel: Any) -> Any:
    """The generated stub, over a channel of grpc or grpc.aio."""
    return translation_pb2_grpc.TranslationServiceStub(channel)  # type: ignore[no-untyped-call]  # generated


def server_call() -> Call[ServerInfo]:
    """The call that asks for the models and limits."""
    return Call("ListModels", pb.ListModelsRequest(), _server_info)


def translate_job(
    model: str, source_language: str, target_language: str, priority: int, options: Mapping[str, Any]
) -> Job[str, Translation]:
    """Translates texts.

    Its calls raise TypeError for a text that is not a str, and InvalidArgument for one with a lone surrogate, which no
    encoding of Unicode can carry; both name it.

    Raises:
        TypeError, ValueError: a setting is of the wrong type or range; names it.
    """
    settings = translate_settings(model, source_language, target_language, priority, options)

    def call(batch: Batch[str]) -> Call[list[Translation]]:
        request = pb.TranslateRequest()
        request.CopyFrom(settings)
        request.texts.extend(_valid(text, f"texts[{index}]") for index, text in enumerate(batch.items, batch.offset))
        return Call("Translate", request, lambda response: _translations(response, len(batch.items)), batch.offset)

    return Job(call, _bytes_of)


def translate_settings(
    model: str, source_language: str, target_language: str, priority: int, options: Mapping[str, Any]
) -> pb.TranslateRequest:
    """A request without texts; raises as `translate_job` does."""
    return pb.TranslateRequest(
        model=model,
        source_language=source_language,
        target_language=target_language,
        priority=priority,
        options=options_message(options),
    )


def stream_call(
    text: str, model: str, source_language: str, target_language: str, priority: int, options: Mapping[str, Any]
) -> tuple[Call[str], Received]:
    """The call that translates `text` delta by delta, and where the translation is when it has ended.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or range; names it.
        InvalidArgument: the text holds a lone surrogate.
    """
    request = pb.TranslateStreamRequest(
        text=_valid(text, "text"),
        model=model,
        source_language=source_language,
        target_language=target_language,
        priority=priority,
        options=options_message(options),
    )
    received = Received()
    return Call("TranslateStream", request, received.delta_of), received


class Received:
    """What has arrived of a streamed translation."""

    def __init__(self) -> None:
        self.translation: StreamedTranslation | None = None
        """The whole of it, once the last message is there."""

    def delta_of(self, response: pb.TranslateStreamResponse) -> str:
        """Takes one message; returns its delta, which may be empty."""
        if response.HasField("hypothesis"):
            self.translation = StreamedTranslation(_hypothesis(response.hypothesis), _timing(response))
        return response.text_delta

    def end(self) -> None:
        """No more messages come. Internal: the translation is missing."""
        if self.translation is None:
            raise Internal("the server ended the stream without its translation")


def score_job(
    model: str, source_language: str, target_language: str, *, return_tokens: bool
) -> Job[tuple[str, str], Score]:
    """Scores pairs of source and target; raises as `translate_job` does."""
    settings = pb.ScoreRequest(
        model=model, source_language=source_language, target_language=target_language, return_tokens=return_tokens
    )

    def call(batch: Batch[tuple[str, str]]) -> Call[list[Score]]:
        request = pb.ScoreRequest()
        request.CopyFrom(settings)
        request.inputs.extend(_score_input(pair, f"inputs[{n}]") for n, pair in enumerate(batch.items, batch.offset))
        return Call("Score", request, lambda response: _scores(response, len(batch.items)), batch.offset)

    return Job(call, lambda pair: sum(map(_bytes_of, pair)) if _is_pair(pair) else 0)


def _score_input(pair: Any, field: str) -> pb.ScoreInput:
    if not _is_pair(pair):
        raise TypeError(f"{field} must be a pair of source and target, not {pair!r}")
    return pb.ScoreInput(source=_valid(pair[0], f"{field}.source"), target=_valid(pair[1], f"{field}.target"))


def _is_pair(pair: Any) -> bool:
    return isinstance(pair, Sequence) and not isinstance(pair, str | bytes) and len(pair) == 2  # "ab" is none


def _bytes_of(text: str) -> int:
    return len(text.encode(errors="surrogatepass")) if isinstance(text, str) else 0


def _valid(text: Any, field: str) -> str:
    if not isinstance(text, str):
        raise TypeError(f"{field} must be a str, not {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        violation = FieldViolation(field, f"not valid Unicode: {error.reason}")
        raise InvalidArgument(
            f"{violation.field} is {violation.description}", reason="INVALID_FIELD", violations=(violation,)
        ) from error
    return text


def _translations(response: pb.TranslateResponse, expected: int) -> list[Translation]:
    if len(response.translations) != expected:
        raise Internal(f"the server answered {len(response.translations)} translations to {expected} texts")
    timing = _timing(response)
    return [_translation(translation, response.model, timing) for translation in response.translations]


def _translation(translation: pb.Translation, model: str, timing: Timing | None) -> Translation:
    if not translation.hypotheses:
        raise Internal("the server answered a translation without a hypothesis")
    return Translation(
        hypotheses=tuple(_hypothesis(hypothesis) for hypothesis in translation.hypotheses),
        source_tokens=translation.source_tokens,
        model=model,
        timing=timing,
        source_pieces=tuple(translation.source_pieces),
    )


def _scores(response: pb.ScoreResponse, expected: int) -> list[Score]:
    if len(response.scores) != expected:
        raise Internal(f"the server answered {len(response.scores)} scores to {expected} inputs")
    return [Score(score.total_log_prob, tuple(score.token_log_probs), tuple(score.tokens)) for score in response.scores]


def _hypothesis(hypothesis: pb.Hypothesis) -> Hypothesis:
    return Hypothesis(
        text=hypothesis.text,
        score=hypothesis.score if hypothesis.HasField("score") else None,
        finish_reason=_FINISH_REASONS.get(hypothesis.finish_reason, FinishReason.UNSPECIFIED),
        tokens=tuple(hypothesis.tokens),
        token_log_probs=tuple(hypothesis.token_log_probs),
        alignment=tuple(
            AlignmentPoint(point.source_token, point.target_token, point.weight)
            for point in hypothesis.alignment.points
        ),
    )


def _timing(response: pb.TranslateResponse | pb.TranslateStreamResponse) -> Timing | None:
    if not response.HasField("timing"):
        return None
    timing = response.timing
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
