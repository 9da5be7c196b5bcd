"""Turns plain types into messages of the protocol, and messages into plain types (`…_of`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields
from functools import lru_cache
from typing import Any

from google.protobuf.duration_pb2 import Duration

from translane.options import Format, Options, Term
from translane.requests import DocumentRequest, ScoringRequest, TranslationRequest
from translane.results import (
    AlignmentPoint,
    Delta,
    DocumentNote,
    DocumentProgress,
    FinishReason,
    Hypothesis,
    Limits,
    ModelInfo,
    ModelState,
    Score,
    Scores,
    ServerInfo,
    TermOutcome,
    TermReport,
    Timing,
    TranslatedDocument,
    Translation,
    Translations,
    Treatment,
)
from translane.v1 import translation_pb2 as pb

_NANOSECONDS = 1_000_000_000  # of a second

_PIECE = 64 * 1024  # bytes of a document in a message: clients take messages of some megabytes at most

# How many options are remembered by their bytes, and the maximum size of each.
_REMEMBERED = 128
_REMEMBERED_BYTES = 4096

_FORMATS = {
    Format.TEXT: pb.FORMAT_UNSPECIFIED,  # plain text is the default, and is not sent
    Format.HTML: pb.FORMAT_HTML,
    Format.MARKDOWN: pb.FORMAT_MARKDOWN,
    Format.XLIFF: pb.FORMAT_XLIFF,
}
_TERM_OUTCOMES: Mapping[TermOutcome, Any] = {
    each: pb.TermOutcome.Value(f"TERM_OUTCOME_{each.name}") for each in TermOutcome
}
_FORMAT_OF: Mapping[int, str] = {pb.FORMAT_TEXT: Format.TEXT, **{value: name for name, value in _FORMATS.items()}}
# Names of this module: to look a member up in its enumeration takes longer than to make a message.
_ENDED, _CUT_OFF = FinishReason.END_OF_SENTENCE, FinishReason.MAX_LENGTH
_ENDED_NUMBER, _CUT_OFF_NUMBER = pb.FINISH_REASON_END_OF_SENTENCE, pb.FINISH_REASON_MAX_LENGTH
_NO_REASON = pb.FINISH_REASON_UNSPECIFIED
_NO_OPTIONS = Options()
_TEXT: str = Format.TEXT

_FINISH_REASON_OF: Mapping[int, FinishReason] = {
    pb.FINISH_REASON_END_OF_SENTENCE: FinishReason.END_OF_SENTENCE,
    pb.FINISH_REASON_MAX_LENGTH: FinishReason.MAX_LENGTH,
}
_STATES = {each: pb.ModelState.Value(f"MODEL_STATE_{each.name}") for each in ModelState}
_STATE_OF: Mapping[int, ModelState] = {value: name for name, value in _STATES.items()}
_TERM_OUTCOME_OF: Mapping[int, TermOutcome] = {value: name for name, value in _TERM_OUTCOMES.items()}


# Requests


def format_message(format: Format | str) -> pb.Format:
    """The format as it travels. ValueError: there is no such format."""
    try:
        return _FORMATS[Format(format)]
    except ValueError:
        raise ValueError(f"format must be one of {', '.join(Format)}, not {format!r}") from None


def options_message(options: Options) -> pb.DecodingOptions:
    """The message that sets what `options` sets, and nothing else."""
    message = pb.DecodingOptions()
    for name in Options.__slots__:
        value = getattr(options, name)
        if value is None:
            continue
        if name == "terminology":
            message.terminology.extend(map(_term_message, value))
        elif isinstance(value, tuple):
            getattr(message, name).extend(value)
        else:
            setattr(message, name, value)
    return message


def _term_message(term: Term) -> pb.Term:
    message = pb.Term(source=term.source, target=term.target)
    if term.ignore_case:
        message.ignore_case = True
    if term.inflected:
        message.inflected = True
    return message


def translation_request_of(message: pb.TranslateRequest) -> TranslationRequest:
    """The request of a call of Translate."""
    return _request_of(message, tuple(message.texts), streamed=False)


def stream_request_of(message: pb.TranslateStreamRequest) -> TranslationRequest:
    """The request of a call of TranslateStream."""
    return _request_of(message, (message.text,), streamed=True)


def _request_of(
    message: pb.TranslateRequest | pb.TranslateStreamRequest, texts: tuple[str, ...], *, streamed: bool
) -> TranslationRequest:
    return TranslationRequest(
        texts,
        message.model,
        message.source_language,
        message.target_language,
        options_of(message.options) if message.HasField("options") else _NO_OPTIONS,
        _format_of(message.format) if message.format else _TEXT,
        streamed=streamed,
    )


def scoring_request_of(message: pb.ScoreRequest) -> ScoringRequest:
    """The request of a call of Score."""
    return ScoringRequest(
        tuple([(each.source, each.target) for each in message.inputs]),
        message.model,
        message.source_language,
        message.target_language,
        message.return_tokens,
    )


def document_request_of(message: pb.TranslateDocumentRequest) -> DocumentRequest:
    """The request of a call of TranslateDocument."""
    return DocumentRequest(
        message.content,
        message.mime_type,
        message.model,
        message.source_language,
        message.target_language,
        options_of(message.options) if message.HasField("options") else _NO_OPTIONS,
        message.replace_translations,
    )


def options_of(message: pb.DecodingOptions) -> Options:
    """The options that a message sets. They are remembered, because most requests have the options of another one."""
    serialized = message.SerializeToString()
    return _remembered(serialized) if len(serialized) <= _REMEMBERED_BYTES else _read(message)


@lru_cache(_REMEMBERED)
def _remembered(serialized: bytes) -> Options:
    return _read(pb.DecodingOptions.FromString(serialized))


def _read(message: pb.DecodingOptions) -> Options:
    return Options(**{field.name: _value(field.name, value) for field, value in message.ListFields()})


def _value(name: str, value: Any) -> Any:
    if name == "terminology":
        return tuple([Term(each.source, each.target, each.ignore_case, each.inflected) for each in value])
    return value if isinstance(value, bool | int | float | str) else tuple(value)


def _format_of(number: int) -> str:
    known = _FORMAT_OF.get(number)
    if known is not None:
        return known
    return pb.Format.Name(pb.Format.ValueType(number)) if number in pb.Format.values() else str(number)


# Answers


def translate_response(answer: Translations) -> pb.TranslateResponse:
    """The answer to a call of Translate. Messages are filled in their places, because to copy them there is slow."""
    models = answer.models
    response = pb.TranslateResponse(model=models[0] if len(models) == 1 else "")
    translations = response.translations
    for each in answer.translations:
        message = translations.add()
        _fill_translation(message, each)
        if len(models) != 1:
            message.models.extend(models or each.models)
    _fill_timing(response.timing, answer.timing)
    for name, version in answer.versions.items():
        response.model_versions[name] = version
    return response


def stream_response(delta: Delta) -> pb.TranslateStreamResponse:
    """A message of a call of TranslateStream."""
    response = pb.TranslateStreamResponse(text_delta=delta.text)
    if end := delta.translation:
        _fill_hypothesis(response.hypothesis, end.hypothesis)
        if end.timing:
            _fill_timing(response.timing, end.timing)
        if end.treatment:
            _fill_treatment(response.treatment, end.treatment)
        response.models.extend(end.models)
        response.model_versions.update(end.versions)
    return response


def document_responses(document: TranslatedDocument) -> Iterator[pb.TranslateDocumentResponse]:
    """The messages of a translated document: its content, and its end."""
    content = document.content
    for start in range(0, len(content), _PIECE):
        yield pb.TranslateDocumentResponse(content=content[start : start + _PIECE])
    end = pb.DocumentEnd(content_bytes=len(content), models=document.models, model_versions=document.versions)
    if document.timing:
        _fill_timing(end.timing, document.timing)
    if document.treatment:
        _fill_treatment(end.treatment, document.treatment)
    for note in document.notes:
        message = end.notes.add(line=note.line, cut_sentences=note.cut_sentences)
        if note.term:
            message.term.CopyFrom(_report_message(note.term))
    yield pb.TranslateDocumentResponse(end=end)


def progress_response(progress: DocumentProgress) -> pb.TranslateDocumentResponse:
    """A message that tells the progress of a document."""
    return pb.TranslateDocumentResponse(
        progress=pb.DocumentProgress(texts_done=progress.texts_done, texts=progress.texts)
    )


def document_of(content: bytes, end: pb.DocumentEnd) -> TranslatedDocument:
    """The document whose parts have come, with its end."""
    return TranslatedDocument(
        content,
        timing_of(end),
        treatment_of(end),
        tuple(
            DocumentNote(note.line, note.cut_sentences, _report_of(note.term) if note.HasField("term") else None)
            for note in end.notes
        ),
        tuple(end.models),
        dict(end.model_versions),
    )


def score_response(answer: Scores) -> pb.ScoreResponse:
    """The answer to a call of Score."""
    response = pb.ScoreResponse(model=answer.model)
    for each in answer.scores:
        response.scores.add(
            total_log_prob=each.total_log_prob, token_log_probs=each.token_log_probs, tokens=each.tokens
        )
    _fill_timing(response.timing, answer.timing)
    response.model_versions.update(answer.versions)
    return response


def translations_of(response: pb.TranslateResponse) -> list[Translation]:
    """The translations of a response, each with its models, and the response's timing and versions."""
    timing, versions = timing_of(response), dict(response.model_versions)
    models = (response.model,) if response.model else ()
    return [
        Translation(
            hypotheses=tuple([hypothesis_of(hypothesis) for hypothesis in each.hypotheses]),
            source_tokens=each.source_tokens,
            models=tuple(each.models) or models,
            timing=timing,
            source_pieces=tuple(each.source_pieces),
            treatment=treatment_of(each),
            versions=versions,
        )
        for each in response.translations
    ]


def scores_of(response: pb.ScoreResponse) -> list[Score]:
    """The scores of a response, each with the response's model, timing and versions."""
    rest = response.model, timing_of(response), dict(response.model_versions)
    return [
        Score(each.total_log_prob, tuple(each.token_log_probs), tuple(each.tokens), *rest) for each in response.scores
    ]


def _fill_translation(message: pb.Translation, translation: Translation) -> None:
    message.source_tokens = translation.source_tokens
    hypotheses = message.hypotheses
    for each in translation.hypotheses:
        _fill_hypothesis(hypotheses.add(), each)
    if translation.source_pieces:
        message.source_pieces.extend(translation.source_pieces)
    if translation.treatment:
        _fill_treatment(message.treatment, translation.treatment)


def _fill_hypothesis(message: pb.Hypothesis, hypothesis: Hypothesis) -> None:
    message.text = hypothesis.text
    reason = hypothesis.finish_reason
    message.finish_reason = _ENDED_NUMBER if reason is _ENDED else _CUT_OFF_NUMBER if reason is _CUT_OFF else _NO_REASON
    if hypothesis.score is not None:
        message.score = hypothesis.score
    if hypothesis.tokens:
        message.tokens.extend(hypothesis.tokens)
    if hypothesis.token_log_probs:
        message.token_log_probs.extend(hypothesis.token_log_probs)
    if hypothesis.alignment:
        message.alignment.points.extend(map(_point_message, hypothesis.alignment))
    if hypothesis.quality is not None:
        message.quality = hypothesis.quality


def _point_message(point: AlignmentPoint) -> pb.AlignmentPoint:
    return pb.AlignmentPoint(source_token=point.source_token, target_token=point.target_token, weight=point.weight)


def hypothesis_of(hypothesis: pb.Hypothesis) -> Hypothesis:
    """A candidate translation."""
    return Hypothesis(
        text=hypothesis.text,
        score=hypothesis.score if hypothesis.HasField("score") else None,
        finish_reason=_FINISH_REASON_OF.get(hypothesis.finish_reason, FinishReason.UNSPECIFIED),
        tokens=tuple(hypothesis.tokens),
        token_log_probs=tuple(hypothesis.token_log_probs),
        alignment=tuple(
            AlignmentPoint(point.source_token, point.target_token, point.weight)
            for point in hypothesis.alignment.points
        ),
        quality=hypothesis.quality if hypothesis.HasField("quality") else None,
    )


def _fill_treatment(message: pb.Treatment, treatment: Treatment) -> None:
    message.sentences = treatment.sentences
    message.cut_sentences = treatment.cut_sentences
    message.preserved = treatment.preserved
    message.terms.extend(map(_report_message, treatment.terms))
    message.source_language = treatment.source_language or ""
    message.pivot_language = treatment.pivot_language or ""
    message.stand_ins = treatment.stand_ins
    message.decoded_again = treatment.decoded_again
    message.missing_numbers = treatment.missing_numbers


def _report_message(term: TermReport) -> pb.TermReport:
    outcome = _TERM_OUTCOMES[term.outcome]
    return pb.TermReport(source=term.source, target=term.target, outcome=outcome, glossary=term.glossary)


def _report_of(term: pb.TermReport) -> TermReport:
    outcome = _TERM_OUTCOME_OF.get(term.outcome, TermOutcome.UNSPECIFIED)
    return TermReport(term.source, term.target, outcome, term.glossary)


def treatment_of(message: pb.Translation | pb.TranslateStreamResponse | pb.DocumentEnd) -> Treatment | None:
    """What was done with a text besides translating it; None if nothing was."""
    if not message.HasField("treatment"):
        return None
    treatment = message.treatment
    return Treatment(
        sentences=treatment.sentences,
        cut_sentences=treatment.cut_sentences,
        preserved=treatment.preserved,
        terms=tuple(map(_report_of, treatment.terms)),
        source_language=treatment.source_language or None,
        pivot_language=treatment.pivot_language or None,
        stand_ins=treatment.stand_ins,
        decoded_again=treatment.decoded_again,
        missing_numbers=treatment.missing_numbers,
    )


def _fill_timing(message: pb.Timing, timing: Timing) -> None:
    message.cached_texts = timing.cached_texts
    _set(message.queue, timing.queue)
    _set(message.encode, timing.encode)
    _set(message.decode, timing.decode)
    _set(message.total, timing.total)


def timing_of(
    response: pb.TranslateResponse | pb.TranslateStreamResponse | pb.ScoreResponse | pb.DocumentEnd,
) -> Timing | None:
    """Where the time of a request went; None if the server does not say."""
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


def _set(duration: Duration, seconds: float) -> None:
    duration.seconds, duration.nanos = divmod(round(seconds * _NANOSECONDS), _NANOSECONDS)


def _seconds(duration: Duration) -> float:
    return duration.seconds + duration.nanos / _NANOSECONDS


# Models


def server_info_of(response: pb.ListModelsResponse) -> ServerInfo:
    """The server's version, limits and models."""
    limits = response.limits
    return ServerInfo(
        version=response.server_version,
        limits=Limits(limits.max_request_texts, limits.max_queue_size, limits.max_beam_size, limits.document_bytes),
        models=tuple(_model_info(model) for model in response.models),
    )


def _model_info(model: pb.Model) -> ModelInfo:
    return ModelInfo(
        name=model.name,
        version=model.version,
        digest=model.digest,
        source_languages=tuple(model.source_languages),
        target_languages=tuple(model.target_languages),
        precision=model.precision,
        device=model.device,
        license=model.license,
        parameters=model.parameters,
        max_source_tokens=model.max_source_tokens,
        max_target_tokens=model.max_target_tokens,
        default_max_length=model.default_max_length,
        decoding_defaults={field.name: _default(value) for field, value in model.decoding_defaults.ListFields()},
        glossaries=tuple(model.glossaries),
        state=_STATE_OF.get(model.state, ModelState.UNSPECIFIED),
        max_beam_size=model.max_beam_size,
        max_queue_size=model.max_queue_size,
    )


def list_models_response(info: ServerInfo) -> pb.ListModelsResponse:
    """The answer to a call of ListModels."""
    limits = pb.Limits(**asdict(info.limits))
    return pb.ListModelsResponse(server_version=info.version, limits=limits, models=map(model_message, info.models))


def model_message(model: ModelInfo) -> pb.Model:
    """The message that describes a model. It has the fields of `ModelInfo`."""
    values = {field.name: getattr(model, field.name) for field in fields(model)}
    values["state"] = _STATES[model.state]
    values["decoding_defaults"] = options_message(Options(**model.decoding_defaults))
    return pb.Model(**values)


def _default(value: Any) -> Any:
    """An option's value. A float of 32 bits becomes the shortest number that such a float stands for: 0.6."""
    if isinstance(value, float):
        return float(f"{value:.7g}")
    return value if isinstance(value, bool | int | str) else list(value)
