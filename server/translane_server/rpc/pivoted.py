"""The messages of a request that two models translate, one after the other.

The first step translates the texts into the language in the middle, the second step its translations into the target
language. What concerns the source text holds in the first step: format, sentences, and what is preserved. The format
and what is preserved hold in the second step, too, whose texts still have them. What concerns the translation holds in
the second step alone: its beginning, length, phrases, hypotheses, samples, and what is returned. Both steps search with
the same beams, and with shortlists or without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from translane.v1 import translation_pb2 as pb
from translane_server.errors import FieldViolation, InvalidRequestError
from translane_server.models.pivots import Pivot

# The options of the first step.
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
)
# The options that pair the source text with the translation. No step sees both.
_OF_NO_STEP = ("terminology", "glossaries")

_Request = TypeVar("_Request", pb.TranslateRequest, pb.TranslateStreamRequest)


def check_pivoted(options: pb.DecodingOptions, pivot: Pivot) -> None:
    """Refuse options that two models cannot keep.

    Raises:
        InvalidRequestError: there are terms.
    """
    problem = f"cannot be kept through a third language, {pivot.language}: the second model does not see the source"
    if wrong := [FieldViolation(f"options.{name}", problem) for name in _OF_NO_STEP if len(getattr(options, name))]:
        raise InvalidRequestError(*wrong)


def first_step(request: pb.TranslateRequest, pivot: Pivot) -> pb.TranslateRequest:
    """Return the request to the first model."""
    options = pb.DecodingOptions()
    for field, _ in request.options.ListFields():
        if field.name not in _OF_BOTH_STEPS:
            continue
        if field.name == "preserve":
            options.preserve.extend(request.options.preserve)
        else:
            setattr(options, field.name, getattr(request.options, field.name))
    return pb.TranslateRequest(
        texts=request.texts,
        model=pivot.first.name,
        source_language=request.source_language,
        target_language=pivot.language,
        options=options,
        priority=request.priority,
        format=request.format,
    )


def second_step(request: _Request, pivot: Pivot, first: pb.TranslateResponse) -> _Request:
    """Return the request to the second model: its texts are the translations of the `first` step."""
    texts = [translation.hypotheses[0].text for translation in first.translations]
    second = type(request)()
    second.CopyFrom(request)
    second.model = pivot.second.name
    second.source_language = pivot.language
    if isinstance(second, pb.TranslateStreamRequest):
        (second.text,) = texts
    else:
        del second.texts[:]
        second.texts.extend(texts)
    return second


def add_first_step(
    hypotheses: Iterable[pb.Hypothesis], treatment: pb.Treatment, first: pb.Translation, pivot: Pivot
) -> None:
    """Add to the second step's message of a text what the first step did with the text.

    A translation of a text that was cut off is cut off.
    """
    treatment.pivot_language = pivot.language
    treatment.sentences = first.treatment.sentences
    treatment.cut_sentences += first.treatment.cut_sentences
    treatment.preserved = first.treatment.preserved
    if (reason := first.hypotheses[0].finish_reason) == pb.FINISH_REASON_MAX_LENGTH:
        for hypothesis in hypotheses:
            hypothesis.finish_reason = reason


@contextmanager
def of_the_text_between(pivot: Pivot) -> Iterator[None]:
    """Say in the errors of the second step that they are about texts that the caller did not send."""
    try:
        yield
    except InvalidRequestError as error:
        raise InvalidRequestError(
            *(
                FieldViolation(each.field, f"its translation into {pivot.language} {each.description}")
                if each.field.startswith("text")
                else each
                for each in error.violations
            )
        ) from None


@contextmanager
def renamed(name: Callable[[str], str]) -> Iterator[None]:
    """Name fields in the errors of a step as `name` returns them."""
    try:
        yield
    except InvalidRequestError as error:
        renamed = [FieldViolation(name(each.field), each.description) for each in error.violations]
        raise InvalidRequestError(*renamed) from None
