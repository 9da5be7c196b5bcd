"""What a Translate request may ask for. Every wrong field is named, all of them at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from translane.v1 import translation_pb2 as pb
from translane_server.config import TokenLimits
from translane_server.errors import FieldViolation, InvalidRequestError, UnsupportedOptionError
from translane_server.languages import lookup

_SHOWN_CHARACTERS = 40

# A text of more characters than this for each token it may have is refused unread: counting the tokens of megabytes
# takes a second, and no real text has pieces of that length.
_CHARACTERS_PER_TOKEN = 64

# Options that are implemented; and of the others, the values that ask for nothing this server does not do anyway.
_SUPPORTED = frozenset({"max_length"})
_NEUTRAL: Mapping[str, object] = {
    "beam_size": 1,
    "num_hypotheses": 1,
    "suppress_unknown": False,
    "replace_unknowns": False,
    "return_tokens": False,
    "return_token_scores": False,
    "return_alignment": False,
    "split_sentences": False,
}


@dataclass(frozen=True)
class RequestLimits:
    """What every request is held to."""

    texts_per_request: int
    sentences_waiting: int
    tokens: TokenLimits


def check_request(
    request: pb.TranslateRequest,
    source_languages: Sequence[str],
    target_languages: Sequence[str],
    limits: RequestLimits,
) -> list[FieldViolation]:
    """What is wrong with `request`, as far as can be told before its texts are tokens."""
    return [
        *_check_texts(request.texts, limits),
        *_check_language("source_language", request.source_language, source_languages),
        *_check_language("target_language", request.target_language, target_languages),
        *_check_max_length(request.options, limits.tokens.target),
    ]


def check_tokens(sources: Sequence[Sequence[int]], limit: int) -> list[FieldViolation]:
    """Which texts are longer than `limit` tokens."""
    return [
        FieldViolation(f"texts[{index}]", f"has {len(source)} tokens, at most {limit} are accepted")
        for index, source in enumerate(sources)
        if len(source) > limit
    ]


def check_options(options: pb.DecodingOptions) -> list[FieldViolation]:
    """Which options are set that this server does not implement."""
    return [
        FieldViolation(f"options.{option.name}", "is not implemented by this server")
        for option, value in options.ListFields()
        if option.name not in _SUPPORTED and not (option.name in _NEUTRAL and value == _NEUTRAL[option.name])
    ]


def refuse(wrong: Sequence[FieldViolation], unsupported: Sequence[FieldViolation]) -> None:
    """Raise what answers these violations, if there are any.

    Raises:
        InvalidRequestError: something is wrong.
        UnsupportedOptionError: nothing is wrong, but something is not implemented.
    """
    if wrong:
        raise InvalidRequestError(*wrong, *unsupported)
    if unsupported:
        raise UnsupportedOptionError(*unsupported)


def shown(value: str) -> str:
    """`value` of a request, quoted for a message and not longer than a message can be."""
    return repr(value if len(value) <= _SHOWN_CHARACTERS else value[:_SHOWN_CHARACTERS] + "…")


def _check_texts(texts: Sequence[str], limits: RequestLimits) -> list[FieldViolation]:
    limit, characters = limits.texts_per_request, _CHARACTERS_PER_TOKEN * limits.tokens.source
    if not texts:
        return [FieldViolation("texts", "is empty; at least one text is needed")]
    if len(texts) > limit:
        return [FieldViolation("texts", f"has {len(texts)} texts, at most {limit} are accepted")]
    return [
        FieldViolation(f"texts[{index}]", f"has {len(text)} characters, at most {characters} are accepted")
        for index, text in enumerate(texts)
        if len(text) > characters
    ]


def _check_language(name: str, wanted: str, available: Sequence[str]) -> list[FieldViolation]:
    listed = ", ".join(available)
    if not wanted:
        return [] if len(available) == 1 else [FieldViolation(name, f"is needed, the model has several: {listed}")]
    if lookup(wanted, available):
        return []
    return [FieldViolation(name, f"{shown(wanted)} is not a language of the model, which has: {listed}")]


def _check_max_length(options: pb.DecodingOptions, limit: int) -> list[FieldViolation]:
    if not options.HasField("max_length") or 1 <= options.max_length <= limit:
        return []
    return [FieldViolation("options.max_length", f"is {options.max_length}, it must be from 1 to {limit}")]
