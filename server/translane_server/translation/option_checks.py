"""Checks options, after a model's defaults are added: the range of each one, and what cannot be combined.

`limits` has already checked how long the options are, and how many. `resolved_options` has the checks that need tokens:
does the prefix fit, and can the vocabulary spell a term?
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from translane.options import Options, float32
from translane_server.core.errors import FieldViolation
from translane_server.translation.limits import RequestLimits, TokenLimits

# The beam size of sentences in which a term occurs, if neither the request nor the model's default sets beam_size.
_TERMINOLOGY_BEAMS = 4

# Options without a range. Any value is valid, or a separate function checks the option.
UNRANGED = frozenset(
    {
        "early_stopping",
        "seed",
        "target_prefix",
        "suppress_unknown",
        "replace_unknowns",
        "suppressed_phrases",
        "terminology",
        "return_tokens",
        "return_token_scores",
        "return_alignment",
        "split_sentences",
        "return_alternatives",
        "preserve",
        "preserve_untranslatable",
        "glossaries",
        "return_quality",
        "use_shortlist",
    }
)


@dataclass(frozen=True)
class OptionLimits:
    """The limits of the options.

    Attributes:
        tokens: limits of the lengths of source and target.
        beam_size: maximum number of beams, and of hypotheses.
        alignment: whether the model can align target tokens to source tokens.
        shortlist: whether the model has a shortlist.
    """

    tokens: TokenLimits
    beam_size: int
    alignment: bool
    shortlist: bool = False


@dataclass(frozen=True)
class Range:
    """The numbers from `least` (or above it) to `most`."""

    least: float
    most: float = math.inf
    above: bool = False

    def __contains__(self, value: float) -> bool:
        if not math.isfinite(value):
            return False
        return (value > self.least if self.above else value >= self.least) and value <= self.most

    def __str__(self) -> str:
        if self.most == math.inf:
            return f"above {self.least}" if self.above else f"{self.least} or more"
        return f"above {self.least} and at most {self.most}" if self.above else f"from {self.least} to {self.most}"


def ranges(limits: OptionLimits) -> Mapping[str, Range]:
    """Return the range of each option that has one."""
    positive, count = Range(0, above=True), Range(0)
    return {
        "beam_size": Range(1, limits.beam_size),
        "num_hypotheses": Range(1, limits.beam_size),
        "length_penalty": Range(-10, 10),
        "patience": positive,
        "coverage_penalty": Range(-100, 100),
        "repetition_penalty": positive,
        "no_repeat_ngram_size": count,
        "min_length": count,
        "max_length": Range(1, limits.tokens.target),
        "top_k": Range(1),
        "top_p": Range(0, 1, above=True),
        "temperature": positive,
    }


def is_sampled(options: Options) -> bool:
    """Whether the options ask for sampling."""
    return not (options.temperature is None and options.top_k is None and options.top_p is None)


def _has_terms(options: Options) -> bool:
    return bool(options.terminology or options.glossaries)


def beam_size(options: Options, most: int) -> int:
    """Return how many beams the options ask for where a term occurs. `most` is the server's limit."""
    if options.beam_size is not None:
        return options.beam_size
    beams = _has_terms(options) and not is_sampled(options) and not options.return_alternatives
    return min(_TERMINOLOGY_BEAMS, most) if beams else 1


def returns_score(options: Options, most: int) -> bool:
    """Whether hypotheses have a score. `most` is the server's limit of beams."""
    several = (options.num_hypotheses or 1) > 1 or beam_size(options, most) > 1
    return bool(options.return_token_scores) or several or is_sampled(options)


def search_options(limits: RequestLimits) -> Options:
    """Return the defaults of the options that choose and shape a search. The lengths are not among them.

    Beams are as many as the limit allows. A single beam is greedy search, which needs no default: `terminology` may
    then take beams of its own.
    """
    search = limits.search
    values = search.model_dump(exclude={"beam_size", "min_length"}, exclude_none=True)
    beams = min(search.beam_size or 1, limits.beam_size)
    exact: dict[str, Any] = {
        name: float32(value) if isinstance(value, float) else value for name, value in values.items()
    }
    return Options(**exact, beam_size=beams if beams > 1 else None)


def decoding_defaults(limits: RequestLimits) -> Options:
    """Return all defaults of a model, for ListModels."""
    tokens = limits.tokens
    return replace(
        search_options(limits), max_length=tokens.default_max_length, min_length=tokens.default_min_length or None
    )


def with_defaults(options: Options, defaults: Options) -> Options:
    """Return `options` with `defaults` for the options that are unset.

    A request that samples or asks for alternatives has chosen its search, so it takes no beams. A default must never be
    the reason to refuse a request.
    """
    unset = {each.name: getattr(defaults, each.name) for each in fields(Options) if getattr(options, each.name) is None}
    if is_sampled(options) or options.return_alternatives:
        unset.pop("beam_size", None)
    return replace(options, **unset)


def check_options(options: Options, limits: OptionLimits) -> list[FieldViolation]:
    """Return everything that is wrong with `options` and can be found without tokens."""
    wrong = [*_outside(options, limits)]
    named = {violation.field for violation in wrong}
    # a field that is out of its range is reported once
    wrong += [each for each in _combinations(options, limits) if each.field not in named]
    return [
        *wrong,
        *_check_phrases(options),
        *_check_terms(options),
        *_check_alignment(options, limits),
        *_check_split(options),
        *_check_shortlist(options, limits),
    ]


def _outside(options: Options, limits: OptionLimits) -> Iterator[FieldViolation]:
    for name, allowed in ranges(limits).items():
        if (value := getattr(options, name)) is not None and value not in allowed:
            needed = f"{allowed}" if math.isfinite(value) else f"a finite number {allowed}"
            yield _violation(name, f"is {_shown(value)}, it must be {needed}")


def _combinations(options: Options, limits: OptionLimits) -> Iterator[FieldViolation]:
    beams, sampled, alternatives = (
        beam_size(options, limits.beam_size),
        is_sampled(options),
        options.return_alternatives,
    )
    hypotheses = 1 if options.num_hypotheses is None else options.num_hypotheses
    patience = 1.0 if options.patience is None else options.patience
    if beams > 1 and sampled:
        yield _violation("beam_size", "above 1 cannot be combined with sampling: temperature, top_k or top_p")
    if alternatives and (beams > 1 or sampled):
        yield _violation(
            "return_alternatives", f"cannot be combined with {'sampling' if sampled else 'beam_size above 1'}"
        )
    if not (sampled or alternatives):
        if hypotheses > max(1, beams):
            yield _violation("num_hypotheses", f"is {hypotheses}, more than the {beams} of beam_size")
        elif math.isfinite(patience) and beams > 1 and hypotheses > max(1, round(patience * beams)):
            yield _violation("patience", f"is {_shown(patience)}: patience * beam_size is less than num_hypotheses")
    if _has_terms(options) and (sampled or alternatives or beams < 2):
        name = "terminology" if options.terminology else "glossaries"
        if limits.beam_size < 2:
            yield _violation(name, "needs beams, and this server has a limit of one")
        else:
            other = "sampling" if sampled else "return_alternatives" if alternatives else "beam_size 1"
            yield _violation(name, f"needs beams: it cannot be combined with {other}")
    if options.max_length is not None and (options.min_length or 0) > max(0, options.max_length):
        yield _violation("min_length", f"is {options.min_length}, more than max_length, {options.max_length}")


def _check_split(options: Options) -> list[FieldViolation]:
    """Return the options that cannot be combined with split_sentences, because they are for one sentence."""
    if not options.split_sentences:
        return []
    refused = {"return_alternatives": options.return_alternatives, "target_prefix": bool(options.target_prefix)}
    return [
        FieldViolation(f"options.{name}", "cannot be combined with split_sentences")
        for name, present in refused.items()
        if present
    ]


def _check_phrases(options: Options) -> Iterator[FieldViolation]:
    prefix = options.target_prefix or ""
    for index, phrase in enumerate(options.suppressed_phrases):
        if not phrase:
            yield _violation(f"suppressed_phrases[{index}]", "is empty")
        elif phrase in prefix:
            yield _violation(f"suppressed_phrases[{index}]", "occurs in target_prefix")


def _check_terms(options: Options) -> Iterator[FieldViolation]:
    for index, term in enumerate(options.terminology):
        for side, text in (("source", term.source), ("target", term.target)):
            if not text.strip():
                yield _violation(f"terminology[{index}].{side}", "is empty")


def _check_alignment(options: Options, limits: OptionLimits) -> Iterator[FieldViolation]:
    if not limits.alignment:
        for name in ("return_alignment", "replace_unknowns", "coverage_penalty"):
            if getattr(options, name):
                yield _violation(name, "needs attention weights, and the model bundle gives none: export it again")


def _check_shortlist(options: Options, limits: OptionLimits) -> Iterator[FieldViolation]:
    if options.use_shortlist and not limits.shortlist:
        yield _violation(
            "use_shortlist", "needs a shortlist, and the model bundle has none: export it with --shortlist"
        )


def _shown(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


def _violation(name: str, description: str) -> FieldViolation:
    return FieldViolation(f"options.{name}", description)
