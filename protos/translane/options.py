"""What a request says about its texts: their format, and the decoding options."""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, NamedTuple, TypedDict

_TERM_FLAGS = {"ignore-case": "ignore_case", "inflected": "inflected"}
_MOST_COLUMNS = 3  # of a line with a term


class Term(NamedTuple):
    """A term: where `source` occurs in a text, `target` occurs in its translation."""

    source: str
    target: str
    ignore_case: bool = False
    """Whether upper and lower case of the source are the same."""
    inflected: bool = False
    """Whether other inflected forms of the source's words are found, too, as far as a stemmer knows them."""

    @classmethod
    def of_line(cls, line: str) -> Term:
        """The term of a line in a file: source TAB target, and maybe TAB and flags. ValueError: it holds no term.

        The flags are `ignore-case`, `inflected`, or both with a comma between. Spaces around a phrase are left out.
        """
        columns = [column.strip() for column in line.split("\t")]
        if not 1 < len(columns) <= _MOST_COLUMNS:
            tabs = "no tab" if len(columns) == 1 else f"{len(columns) - 1} tabs"
            raise ValueError(f"it has {tabs}, and a term has one or two: between source, target and flags")
        source, target, *others = columns
        if not source or not target:
            raise ValueError(f"the {'target' if source else 'source'} is empty")
        flags = [flag.strip() for flag in "".join(others).split(",") if flag.strip()]
        for flag in flags:
            if flag not in _TERM_FLAGS:
                raise ValueError(f"{flag!r:.60} is not a flag; there is {' and '.join(_TERM_FLAGS)}")
        return cls(source, target, **{_TERM_FLAGS[flag]: True for flag in flags})


class Format(StrEnum):
    """What a text is written in. Markup is kept: tags come back around the words that they enclosed."""

    TEXT = "text"
    """Plain text."""
    HTML = "html"
    """An HTML page, or a part of one."""
    MARKDOWN = "markdown"
    """Markdown (CommonMark)."""
    XLIFF = "xliff"
    """The content of an XLIFF <source>: text with inline elements."""


class DecodingOptions(TypedDict, total=False):
    """How to search for a translation.

    An option that is left out, or None, takes the model's default (`ModelInfo.decoding_defaults`), or else the default
    named here. A beam_size above 1, the request's or the model's default, selects beam search. One of temperature,
    top_k and top_p selects sampling. Otherwise greedy search takes the most probable token. Names and meanings are
    those of `translane.v1.DecodingOptions`. The server refuses options that it does not offer, or that exclude each
    other, with an InvalidArgument that names the field.
    """

    beam_size: int | None
    """Number of beams; 1 is greedy search. Default: 1, or 4 in sentences where a term occurs."""
    num_hypotheses: int | None
    """Hypotheses to return for each text: at most beam_size, unless tokens are sampled or return_alternatives is set.
    Default: 1."""
    length_penalty: float | None
    """Beam search: hypotheses are ranked by log-probability / length ^ length_penalty. Default: 1."""
    early_stopping: bool | None
    """Beam search: stop as soon as beam_size hypotheses have ended, and not only when no beam can improve. Default:
    False."""
    patience: float | None
    """Beam search: wait for patience · beam_size ended hypotheses in place of beam_size. Default: 1."""
    coverage_penalty: float | None
    """Beam search: weight of the penalty for source tokens that the translation does not attend to. Default: 0."""
    repetition_penalty: float | None
    """Makes tokens that were generated already this many times less likely. Default: 1."""
    no_repeat_ngram_size: int | None
    """No sequence of this many tokens occurs twice; 0 is off. Default: 0."""
    min_length: int | None
    """Fewest tokens before the end-of-sentence token, without those of target_prefix. Default: 0."""
    max_length: int | None
    """Most tokens to generate, with the end-of-sentence token, without those of target_prefix. Default: the model's."""
    top_k: int | None
    """Samples among this many best tokens. Default: among all."""
    top_p: float | None
    """Samples among the fewest best tokens whose probabilities add up to this. Default: among all."""
    temperature: float | None
    """Samples; divides the logits by this. Default: 1."""
    seed: int | None
    """The same seed, of 64 bits, gives the same sample. Default: another seed for each request."""
    target_prefix: str | None
    """The translation starts with this text. Default: none."""
    suppress_unknown: bool | None
    """Never generates the unknown token. Default: False."""
    replace_unknowns: bool | None
    """Replaces each unknown token by the source token that it is aligned to. Default: False."""
    suppressed_phrases: Iterable[str] | None
    """Phrases that must not occur in the translation, not even as a part of a word. Default: none."""
    terminology: Mapping[str, str] | Iterable[Sequence[str] | Term] | None
    """Source phrase → target phrase, as a mapping, as pairs, or as `Term` values: where the source phrase occurs in a
    text, the target phrase occurs in the translation. Needs beam search. Default: none."""
    return_tokens: bool | None
    """Returns the tokens of each hypothesis and of the source. Default: False."""
    return_token_scores: bool | None
    """Returns the log-probability of each token, and the score of greedy search. It takes time. Default: False."""
    return_alignment: bool | None
    """Returns the source token that each target token attends to most, and the tokens of the source. Default: False."""
    split_sentences: bool | None
    """True cuts each text into sentences, translates the sentences, and joins their translations. False takes each text
    for one sentence. Default: texts are cut where they hold several sentences, or more than the model takes at once."""
    return_alternatives: bool | None
    """The hypotheses differ in the token after target_prefix, and go on from there by greedy search. Default: False."""
    preserve: Iterable[str] | None
    """Regular expressions (RE2). What they match is not translated, and occurs in the translation as it is. Default:
    none."""
    preserve_untranslatable: bool | None
    """Keeps placeholders, URLs, e-mail addresses, tags, emoji and characters that the model does not know as they are.
    Default: True."""
    glossaries: Iterable[str] | None
    """Names of glossaries that the server stores. Default: none."""
    return_quality: bool | None
    """Returns the estimated quality of each hypothesis, from 0 to 1. Default: False."""
    use_shortlist: bool | None
    """Generates only the tokens that the model's shortlist has for the source. Default: False."""
    check_numbers: bool | None
    """Decodes a sentence again whose translation lacks a number of three digits or more, or with decimals. Default:
    False."""


class LanguageOptions(TypedDict, total=False):
    """What a request says of its model, its languages and its time. All may be left out."""

    model: str
    """A model's name. If it is left out, the languages choose the model."""
    source_language: str
    """BCP-47 tag, or "auto" where it has to be found. May be left out where the model has one source language."""
    target_language: str
    """BCP-47 tag. May be left out where the model has one target language."""
    timeout: float | None
    """Deadline in seconds of the whole call, retries included. None: the client's deadline."""


class TranslateOptions(LanguageOptions, DecodingOptions, total=False):
    """What a request says beside its texts: how to read and to translate them. All may be left out."""

    format: Format | str
    """What the texts are written in, as a Format or its name: text, html, markdown or xliff."""
    priority: int
    """Waiting sentences of a higher priority are translated first."""


class DocumentOptions(LanguageOptions, DecodingOptions, total=False):
    """What a request says beside its document. All may be left out.

    A document holds one translation: num_hypotheses above 1, target_prefix and what returns more are refused.
    """

    priority: int
    """Waiting sentences of a higher priority are translated first."""
    replace_translations: bool
    """Translate also what has a translation in the file: of XLIFF and gettext. Default: False."""


class ScoreOptions(LanguageOptions, total=False):
    """What a request for scores says beside its pairs. All may be left out."""

    return_tokens: bool
    """Return the tokens of each target."""


@dataclass(frozen=True, slots=True)
class Options:
    """The decoding options of a request, as `DecodingOptions` describes them. None: the request does not set it."""

    beam_size: int | None = None
    num_hypotheses: int | None = None
    length_penalty: float | None = None
    early_stopping: bool | None = None
    patience: float | None = None
    coverage_penalty: float | None = None
    repetition_penalty: float | None = None
    no_repeat_ngram_size: int | None = None
    min_length: int | None = None
    max_length: int | None = None
    top_k: int | None = None
    top_p: float | None = None
    temperature: float | None = None
    seed: int | None = None
    target_prefix: str | None = None
    suppress_unknown: bool | None = None
    replace_unknowns: bool | None = None
    suppressed_phrases: tuple[str, ...] = ()
    terminology: tuple[Term, ...] = ()
    return_tokens: bool | None = None
    return_token_scores: bool | None = None
    return_alignment: bool | None = None
    split_sentences: bool | None = None
    return_alternatives: bool | None = None
    preserve: tuple[str, ...] = ()
    preserve_untranslatable: bool | None = None
    glossaries: tuple[str, ...] = ()
    return_quality: bool | None = None
    use_shortlist: bool | None = None
    check_numbers: bool | None = None


def checked_request(request: Mapping[str, Any]) -> tuple[dict[str, Any], Options]:
    """What a request says of its model, its languages and its priority, and its decoding options; not its time.

    Raises: as `checked_options`.
    """
    options = {name: value for name, value in request.items() if name != "timeout"}
    fields = {name: options.pop(name) for name in _BESIDE_OPTIONS if name in options}
    return _checked(fields, _BESIDE_OPTIONS), checked_options(options)


def checked_scoring(request: Mapping[str, Any]) -> dict[str, Any]:
    """What a request for scores says beside its pairs and its time, by `ScoreOptions`. Raises: as `checked_options`."""
    return _checked({name: value for name, value in request.items() if name != "timeout"}, _OF_SCORES)


def checked_options(options: Mapping[str, Any]) -> Options:
    """The options that `options` sets. A float gets the precision of 32 bits, with which it travels.

    Raises:
        TypeError, ValueError: an option is unknown, or its value is of the wrong type or range; the message names the
            option.
    """
    return Options(**_checked(options, _CONVERTERS))


def _checked(values: Mapping[str, Any], converters: Mapping[str, Callable[[Any], Any]]) -> dict[str, Any]:
    checked: dict[str, Any] = {}
    for name, value in values.items():
        if (convert := converters.get(name)) is None:
            raise TypeError(f"unknown option {name!r}")
        if value is None:
            continue
        try:
            checked[name] = convert(value)
        except TypeError as error:
            raise TypeError(f"{name}: {error}") from error
        except ValueError as error:  # also a UnicodeEncodeError
            raise ValueError(f"{name}: {error}") from error
    return checked


def _terms(terms: Any) -> tuple[Term, ...]:
    return tuple(map(_term, terms.items() if isinstance(terms, Mapping) else terms))


def _term(pair: Any) -> Term:
    if isinstance(pair, Term):
        return Term(_text(pair.source), _text(pair.target), _boolean(pair.ignore_case), _boolean(pair.inflected))
    if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:  # "ab" is no pair
        raise TypeError(f"a mapping, or pairs of source and target, is needed; {pair!r} is no pair")
    return Term(_text(pair[0]), _text(pair[1]))


def _phrases(phrases: Any) -> tuple[str, ...]:
    if isinstance(phrases, str):  # else the characters would be taken for phrases
        raise TypeError("a list of str is needed, not a str")
    return tuple(map(_text, phrases))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a str is needed, not {value!r}")
    value.encode()  # a lone surrogate has no UTF-8
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
"""Largest float of 32 bits."""


def _number(value: Any) -> float:
    if isinstance(value, bool | str) or not hasattr(value, "__float__"):
        raise TypeError(f"a number is needed, not {value!r}")
    number = float(value)
    if abs(number) > FLOAT_MAX and not math.isinf(number):
        raise ValueError(f"a number of 32 bits is needed, not {value!r}")
    return float32(number)


def float32(number: float) -> float:
    """The float of 32 bits that is nearest to `number`."""
    return float(struct.unpack("f", struct.pack("f", number))[0])


_int32 = _integer(-(2**31), 2**31 - 1)

_BY_TYPE: Mapping[str, Callable[[Any], Any]] = {
    "int | None": _int32,
    "float | None": _number,
    "bool | None": _boolean,
    "str | None": _text,
    "tuple[str, ...]": _phrases,
    "tuple[Term, ...]": _terms,
}
_CONVERTERS = {each.name: _BY_TYPE[str(each.type)] for each in fields(Options)} | {"seed": _integer(0, 2**64 - 1)}
_OF_MODELS = {"model": _text, "source_language": _text, "target_language": _text}
_BESIDE_OPTIONS: Mapping[str, Callable[[Any], Any]] = {**_OF_MODELS, "priority": _int32}
_OF_SCORES: Mapping[str, Callable[[Any], Any]] = {**_OF_MODELS, "return_tokens": _boolean}
