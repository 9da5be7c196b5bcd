"""Decoding options by keyword, as they travel in a request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from translane.v1 import translation_pb2 as pb


class DecodingOptions(TypedDict, total=False):
    """How to search for a translation; what is left out, or None, takes the model's default.

    The names and meanings are those of `translane.v1.DecodingOptions`. A server refuses with InvalidArgument, naming
    the field, what it does not offer.
    """

    beam_size: int | None
    num_hypotheses: int | None
    length_penalty: float | None
    early_stopping: bool | None
    patience: float | None
    coverage_penalty: float | None
    repetition_penalty: float | None
    no_repeat_ngram_size: int | None
    min_length: int | None
    max_length: int | None
    top_k: int | None
    top_p: float | None
    temperature: float | None
    seed: int | None
    target_prefix: str | None
    suppress_unknown: bool | None
    replace_unknowns: bool | None
    suppressed_phrases: Sequence[str] | None
    terminology: Mapping[str, str] | None
    """Source phrase → what it has to become."""
    return_tokens: bool | None
    return_token_scores: bool | None
    return_alignment: bool | None
    split_sentences: bool | None


def options_message(options: Mapping[str, Any]) -> pb.DecodingOptions:
    """The message that sets what `options` sets, and nothing else.

    Raises:
        TypeError, ValueError: an option's name is unknown or its value is of the wrong type or range; names it.
    """
    message = pb.DecodingOptions()
    for name, value in options.items():
        if name not in pb.DecodingOptions.DESCRIPTOR.fields_by_name:
            raise TypeError(f"unknown decoding option {name!r}")
        if value is None:
            continue
        try:
            _set(message, name, value)
        except (TypeError, AttributeError) as error:
            raise TypeError(f"{name}: {error}") from error
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
    return message


def _set(message: pb.DecodingOptions, name: str, value: Any) -> None:
    if name == "terminology":
        message.terminology.extend(pb.Term(source=source, target=target) for source, target in value.items())
    elif name == "suppressed_phrases":
        if isinstance(value, str):  # which would be taken for a list of characters
            raise TypeError("a list of phrases is needed, not a str")
        message.suppressed_phrases.extend(value)
    else:
        setattr(message, name, value)
