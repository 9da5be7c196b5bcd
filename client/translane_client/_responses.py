"""Responses as the client's results."""

from __future__ import annotations

from typing import Any

from google.protobuf.duration_pb2 import Duration

from translane.v1 import translation_pb2 as pb
from translane_client.errors import Internal, Unavailable
from translane_client.results import (
    AlignmentPoint,
    FinishReason,
    Hypothesis,
    Limits,
    ModelInfo,
    Score,
    ServerInfo,
    StreamedTranslation,
    TermOutcome,
    TermReport,
    Timing,
    Translation,
    Treatment,
)

_FINISH_REASONS = {
    pb.FINISH_REASON_END_OF_SENTENCE: FinishReason.END_OF_SENTENCE,
    pb.FINISH_REASON_MAX_LENGTH: FinishReason.MAX_LENGTH,
}
_TERM_OUTCOMES = {
    pb.TERM_OUTCOME_APPLIED: TermOutcome.APPLIED,
    pb.TERM_OUTCOME_NOT_FOUND: TermOutcome.NOT_FOUND,
    pb.TERM_OUTCOME_UNSPELLABLE: TermOutcome.UNSPELLABLE,
    pb.TERM_OUTCOME_TOO_MANY: TermOutcome.TOO_MANY,
    pb.TERM_OUTCOME_PRESERVED: TermOutcome.PRESERVED,
    pb.TERM_OUTCOME_MISSED: TermOutcome.MISSED,
}


def translations_of(response: pb.TranslateResponse, expected: int) -> list[Translation]:
    """The translations of `expected` texts.

    Raises:
        Internal: the server answered another number of translations, or one without a hypothesis.
    """
    if len(response.translations) != expected:
        raise Internal(f"the server answered {len(response.translations)} translations to {expected} texts")
    timing = _timing(response)
    return [_translation(translation, response.model, timing) for translation in response.translations]


def scores_of(response: pb.ScoreResponse, expected: int) -> list[Score]:
    """The scores of `expected` pairs. Internal: the server answered another number of scores."""
    if len(response.scores) != expected:
        raise Internal(f"the server answered {len(response.scores)} scores to {expected} inputs")
    return [Score(score.total_log_prob, tuple(score.token_log_probs), tuple(score.tokens)) for score in response.scores]


def server_info_of(response: pb.ListModelsResponse) -> ServerInfo:
    """The server's version, limits and models."""
    limits = response.limits
    return ServerInfo(
        version=response.server_version,
        limits=Limits(limits.texts_per_request, limits.sentences_waiting, limits.beam_size),
        models=tuple(_model_info(model) for model in response.models),
    )


class ReceivedStream:
    """What has arrived of a streamed translation, in all attempts at the call.

    After an attempt that breaks off, the next attempt begins with the first word again. The same text has the same
    translation at every server, so the attempt repeats what was handed out before it goes on. Text that was handed out
    cannot be taken back. So a translation that begins otherwise, as an unseeded sample does, is an error.
    """

    def __init__(self) -> None:
        self.translation: StreamedTranslation | None = None
        """The whole translation, once the last message has arrived."""
        self._handed_out: list[str] = []
        self._repeated = ""  # the text that earlier attempts have handed out
        self._place = 0  # characters of it that have come again

    def begin(self) -> None:
        """Notes that an attempt begins."""
        self._repeated, self._place = "".join(self._handed_out), 0
        self._handed_out = [self._repeated]

    def delta_of(self, response: pb.TranslateStreamResponse) -> str:
        """Takes one message; returns what is new in the message's delta, which may be nothing.

        Raises:
            Unavailable: the text is not what was handed out before the stream broke off.
        """
        delta = response.text_delta
        again = self._repeated[self._place : self._place + len(delta)]
        if not delta.startswith(again):
            raise _begun_otherwise()
        self._place += len(again)
        if fresh := delta[len(again) :]:
            self._handed_out.append(fresh)
        if response.HasField("hypothesis"):
            self.translation = StreamedTranslation(
                _hypothesis(response.hypothesis), _timing(response), _treatment(response)
            )
        return fresh

    def end(self) -> None:
        """Notes that the stream has ended.

        Raises:
            Internal: the whole translation has not arrived.
            Unavailable: the stream is shorter than what was handed out before it broke off.
        """
        if self.translation is None:
            raise Internal("the server ended the stream without its translation")
        if self._place < len(self._repeated):
            self.translation = None
            raise _begun_otherwise()


def _begun_otherwise() -> Unavailable:
    return Unavailable("the stream broke off, and the text, translated again, begins otherwise")


def _translation(translation: pb.Translation, model: str, timing: Timing | None) -> Translation:
    if not translation.hypotheses:
        raise Internal("the server answered a translation without a hypothesis")
    return Translation(
        hypotheses=tuple(_hypothesis(hypothesis) for hypothesis in translation.hypotheses),
        source_tokens=translation.source_tokens,
        model=model,
        timing=timing,
        source_pieces=tuple(translation.source_pieces),
        treatment=_treatment(translation),
    )


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
        quality=hypothesis.quality if hypothesis.HasField("quality") else None,
    )


def _treatment(message: pb.Translation | pb.TranslateStreamResponse) -> Treatment | None:
    if not message.HasField("treatment"):
        return None
    treatment = message.treatment
    return Treatment(
        sentences=treatment.sentences,
        cut_sentences=treatment.cut_sentences,
        preserved=treatment.preserved,
        terms=tuple(
            TermReport(
                term.source, term.target, _TERM_OUTCOMES.get(term.outcome, TermOutcome.UNSPECIFIED), term.glossary
            )
            for term in treatment.terms
        ),
        source_language=treatment.source_language or None,
        pivot_language=treatment.pivot_language or None,
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
        cached_texts=timing.cached_texts,
    )


def _seconds(duration: Duration) -> float:
    return duration.seconds + duration.nanos / 1e9


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
        decoding_defaults={field.name: _option(value) for field, value in model.decoding_defaults.ListFields()},
        glossaries=tuple(model.glossaries),
        int8_kernels=model.int8_kernels,
    )


def _option(value: Any) -> Any:
    """An option's value. A float of 32 bits becomes the shortest number that such a float stands for: 0.6."""
    if isinstance(value, float):
        return float(f"{value:.7g}")
    return value if isinstance(value, bool | int | str) else list(value)
