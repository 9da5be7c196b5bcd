"""Decoding options by keyword, as they travel in a request."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypedDict

from google.protobuf.descriptor import FieldDescriptor

from translane.v1 import translation_pb2 as pb


class DecodingOptions(TypedDict, total=False):
    """How to search for a translation; what is left out, or None, takes the default named here.

    Where beam_size is above 1, beams are searched. Where one of temperature, top_k and top_p is set, tokens are
    sampled. Otherwise the most probable token is taken: greedy search. The names and meanings are those of
    `translane.v1.DecodingOptions`. What a server does not offer, or what cannot work together, it refuses with
    InvalidArgument, which names the field.
    """

    beam_size: int | None
    """Number of beams; 1 is greedy search. Default 1, and 4 where terminology is to be kept."""
    num_hypotheses: int | None
    """Hypotheses to return for each text. Default 1; at most beam_size, but for sampling and return_alternatives."""
    length_penalty: float | None
    """Beams: hypotheses are ranked by log-probability / length ^ length_penalty. Default 1."""
    early_stopping: bool | None
    """Beams: stop as soon as beam_size hypotheses have ended, not only when none can improve. Default False."""
    patience: float | None
    """Beams: take patience · beam_size ended hypotheses for beam_size. Default 1."""
    coverage_penalty: float | None
    """Beams: weight of the penalty for source tokens the translation does not attend to. Default 0."""
    repetition_penalty: float | None
    """Tokens that were generated already are made this many times less likely. Default 1."""
    no_repeat_ngram_size: int | None
    """No sequence of this many tokens occurs twice. Default 0, which is off."""
    min_length: int | None
    """How many tokens come before the end-of-sentence token at least, target_prefix not counted. Default 0."""
    max_length: int | None
    """Most tokens to generate, the end-of-sentence token counted and target_prefix not. Default: the model's."""
    top_k: int | None
    """Sample among this many best tokens. Default: among all."""
    top_p: float | None
    """Sample among the fewest best tokens whose probabilities add up to this. Default: among all."""
    temperature: float | None
    """Divides the logits before sampling. Default 1."""
    seed: int | None
    """The same seed, of 64 bits, gives the same sample. Default: every sample is another."""
    target_prefix: str | None
    """The translation starts with this text. Default: none."""
    suppress_unknown: bool | None
    """Never generate the unknown token. Default False."""
    replace_unknowns: bool | None
    """Put the aligned source token in the place of an unknown token. Default False."""
    suppressed_phrases: Iterable[str] | None
    """Phrases that must not occur in the translation, not even as part of a word. Default: none."""
    terminology: Mapping[str, str] | Iterable[Sequence[str]] | None
    """Source phrase → what its translation has to hold, as a mapping or as pairs; takes beams. Default: none."""
    return_tokens: bool | None
    """Return the tokens of each hypothesis, and those of the source. Default False."""
    return_token_scores: bool | None
    """Return the log-probability of each token, and the score of greedy search, which takes time. Default False."""
    return_alignment: bool | None
    """Return the source token each target token comes from, and the tokens of the source. Default False."""
    split_sentences: bool | None
    """Cut each text into sentences, translate them, and put the translations together again. Default False."""
    return_alternatives: bool | None
    """The hypotheses differ in the token after target_prefix and go on greedily from there. Default False."""


def options_message(options: Mapping[str, Any]) -> pb.DecodingOptions:
    """The message that sets what `options` sets, and nothing else.

    Raises:
        TypeError, ValueError: an option's name is unknown or its value is of the wrong type or range; names it.
    """
    message = pb.DecodingOptions()
    for name, value in options.items():
        field = pb.DecodingOptions.DESCRIPTOR.fields_by_name.get(name)
        if field is None:
            raise TypeError(f"unknown decoding option {name!r}")
        if value is None:
            continue
        try:
            if name == "terminology":
                message.terminology.extend(_terms(value))
            elif name == "suppressed_phrases":
                message.suppressed_phrases.extend(_phrases(value))
            else:
                setattr(message, name, _CONVERTERS[field.type](value))
        except TypeError as error:
            raise TypeError(f"{name}: {error}") from error
        except ValueError as error:  # which a UnicodeEncodeError is
            raise ValueError(f"{name}: {error}") from error
    return message


def _terms(terms: Any) -> Iterator[pb.Term]:
    for pair in terms.items() if isinstance(terms, Mapping) else terms:
        if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:  # "ab" is no pair of "a" and "b"
            raise TypeError(f"a mapping, or pairs of source and target, is needed; {pair!r} is no pair")
        yield pb.Term(source=_text(pair[0]), target=_text(pair[1]))


def _phrases(phrases: Any) -> Iterator[str]:
    if isinstance(phrases, str):  # which would be taken for a list of characters
        raise TypeError("a list of phrases is needed, not a str")
    return map(_text, phrases)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a str is needed, not {value!r}")
    return value


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"a bool is needed, not {value!r}")
    return value


def _integer(low: int, high: int) -> Callable[[Any], int]:
    def convert(value: Any) -> int:
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise TypeError(f"an integer is needed, not {value!r}")
        number = operator.index(value)
        if not low <= number <= high:
            raise ValueError(f"an integer from {low} to {high} is needed, not {value!r}")
        return number

    return convert


FLOAT_MAX = 3.4028234663852886e38
"""Largest float of 32 bits; a message makes infinity of what is larger."""


def _number(value: Any) -> float:
    if isinstance(value, bool | str) or not hasattr(value, "__float__"):
        raise TypeError(f"a number is needed, not {value!r}")
    number = float(value)
    if abs(number) > FLOAT_MAX and not math.isinf(number):
        raise ValueError(f"a number of 32 bits is needed, not {value!r}")
    return number


_CONVERTERS: Mapping[int, Callable[[Any], Any]] = {
    FieldDescriptor.TYPE_INT32: _integer(-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_UINT64: _integer(0, 2**64 - 1),
    FieldDescriptor.TYPE_FLOAT: _number,
    FieldDescriptor.TYPE_BOOL: _boolean,
    FieldDescriptor.TYPE_STRING: _text,
}
