"""Options of requests: their defaults, their checks, and what they mean for decoding.

`limits` has already checked how long the options are, and how many. `plan` has the checks that need tokens: does the
prefix fit, and can the vocabulary spell it?
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from translane.options import Options, float32
from translane_server.bundle.manifest import Manifest
from translane_server.core.errors import FieldViolation
from translane_server.engine.options import DecodingOptions, Sampling
from translane_server.text.characters import composed
from translane_server.translation.limits import RequestLimits, TokenLimits

# The beam size of sentences in which a term occurs, if neither the request nor the model's default sets beam_size.
_TERMINOLOGY_BEAMS = 4


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


def ranges(limits: RequestLimits) -> Mapping[str, Range]:
    """Return the range of each option that is a number, but for the seed: every seed is valid."""
    positive, count, beams = Range(0, above=True), Range(0), Range(1, limits.max_beam_size)
    return {
        "beam_size": beams,
        "num_hypotheses": beams,
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


def beam_size(options: Options, limits: RequestLimits, *, terms: bool = True) -> int:
    """Return how many beams the options ask for in a sentence, in which `terms` occur or not.

    Several hypotheses take the same beams in every sentence.
    """
    if options.beam_size is not None:
        return options.beam_size
    has_terms = (options.terminology or options.glossaries) and (terms or (options.num_hypotheses or 1) > 1)
    takes_beams = has_terms and not is_sampled(options) and not options.return_alternatives
    return min(_TERMINOLOGY_BEAMS, limits.max_beam_size) if takes_beams else 1


def returns_score(options: Options, beams: int) -> bool:
    """Whether the hypotheses of a sentence that is decoded with so many beams have a score."""
    return bool(options.return_token_scores) or (options.num_hypotheses or 1) > 1 or beams > 1 or is_sampled(options)


def search_options(limits: RequestLimits) -> Options:
    """Return the defaults of the options that choose and shape a search. The lengths are not among them.

    Beams are as many as the limit allows. A single beam is greedy search, which needs no default: `terminology` may
    then take beams of its own.
    """
    beams = min(limits.search.beam_size or 1, limits.max_beam_size)
    exact: dict[str, Any] = {
        name: float32(value) if isinstance(value, float) else value
        for name, value in limits.search.given.items()
        if name not in ("beam_size", "min_length")
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


def check_options(options: Options, limits: RequestLimits, manifest: Manifest) -> list[FieldViolation]:
    """Return everything that is wrong with `options` and can be found without tokens."""
    wrong = list(_outside(options, limits))
    named = {violation.field for violation in wrong}
    # a field that is out of its range is reported once
    wrong += [each for each in _combinations(options, limits) if each.field not in named]
    return [*wrong, *_texts(options), *_lacking(options, manifest)]


def _outside(options: Options, limits: RequestLimits) -> Iterator[FieldViolation]:
    for name, allowed in ranges(limits).items():
        if (value := getattr(options, name)) is not None and value not in allowed:
            needed = f"{allowed}" if math.isfinite(value) else f"a finite number {allowed}"
            yield violation(name, f"is {_shown(value)}, it must be {needed}")


def _combinations(options: Options, limits: RequestLimits) -> Iterator[FieldViolation]:
    beams, sampled, alternatives = beam_size(options, limits), is_sampled(options), options.return_alternatives
    hypotheses = 1 if options.num_hypotheses is None else options.num_hypotheses
    patience = _or_one(options.patience)
    if beams > 1 and sampled:
        yield violation("beam_size", "above 1 cannot be combined with sampling: temperature, top_k or top_p")
    if alternatives and (beams > 1 or sampled):
        other = "sampling" if sampled else "beam_size above 1"
        yield violation("return_alternatives", f"cannot be combined with {other}")
    if not (sampled or alternatives):
        if hypotheses > max(1, beams):
            yield violation("num_hypotheses", f"is {hypotheses}, more than the {beams} of beam_size")
        elif math.isfinite(patience) and beams > 1 and hypotheses > max(1, round(patience * beams)):
            yield violation("patience", f"is {_shown(patience)}: patience * beam_size is less than num_hypotheses")
    if (options.terminology or options.glossaries) and (sampled or alternatives or beams < 2):
        name = "terminology" if options.terminology else "glossaries"
        if limits.max_beam_size < 2:
            yield violation(name, "needs beams, and this server has a limit of one")
        else:
            other = "sampling" if sampled else "return_alternatives" if alternatives else "beam_size 1"
            yield violation(name, f"needs beams: it cannot be combined with {other}")
    if options.max_length is not None and (options.min_length or 0) > max(0, options.max_length):
        yield violation("min_length", f"is {options.min_length}, more than max_length, {options.max_length}")


def _texts(options: Options) -> Iterator[FieldViolation]:
    prefix = options.target_prefix or ""
    for index, phrase in enumerate(options.suppressed_phrases):
        if not phrase:
            yield violation(f"suppressed_phrases[{index}]", "is empty")
        elif phrase in prefix:
            yield violation(f"suppressed_phrases[{index}]", "occurs in target_prefix")
    for index, term in enumerate(options.terminology):
        for side in ("source", "target"):
            if not getattr(term, side).strip():
                yield violation(f"terminology[{index}].{side}", "is empty")


def _lacking(options: Options, manifest: Manifest) -> Iterator[FieldViolation]:
    """Yield the options that the model, or a text that is cut into sentences, cannot have."""
    if manifest.alignment is None:
        for name in ("return_alignment", "replace_unknowns", "coverage_penalty"):
            if getattr(options, name):
                yield violation(name, "needs attention weights, and the model bundle gives none: export it again")
    if options.split_sentences:
        for name in ("return_alternatives", "target_prefix"):  # they are for one sentence
            if getattr(options, name):
                yield violation(name, "cannot be combined with split_sentences")
    if options.use_shortlist and manifest.shortlist is None:
        problem = "needs a shortlist, and the model bundle has none: export it with --shortlist"
        yield violation("use_shortlist", problem)


def check_lengths(options: Options, prefix: int, forced: int, tokens: TokenLimits) -> list[FieldViolation]:
    """Return what is wrong with the lengths of options that pass `check_options`.

    `target_prefix` has so many tokens. It is among the `forced` tokens, which the lengths do not count.
    """
    room = tokens.target - forced
    if room < 1:
        most = tokens.target - 1 - (forced - prefix)
        return [violation("target_prefix", f"has {prefix} tokens, at most {most} are accepted")]
    if (options.max_length or 0) > room:
        problem = f"is {options.max_length}, and there is room for {room} tokens after target_prefix"
        return [violation("max_length", problem)]
    if (options.min_length or 0) > (most := _max_length(options, forced, tokens)):
        return [violation("min_length", f"is {options.min_length}, and at most {most} tokens are generated")]
    return []


def violation(name: str, description: str) -> FieldViolation:
    """Return what is wrong with the option `name`."""
    return FieldViolation(f"options.{name}", description)


def _shown(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


def decoding_options(
    options: Options, limits: RequestLimits, forced: int, unknown: int, *, terms: bool
) -> DecodingOptions:
    """Return how a sentence is decoded, by options in which nothing is wrong. See `beam_size` and `check_lengths`.

    Its seed is for all sentences of a request, if the request sets one. `unknown` is a target id.
    """
    tokens, beams = limits.tokens, beam_size(options, limits, terms=terms)
    max_length, min_length = _max_length(options, forced, tokens), options.min_length
    decoding = DecodingOptions(
        max_length=max_length,
        min_length=min(tokens.default_min_length, max_length) if min_length is None else min_length,
        beam_size=beams,
        num_hypotheses=options.num_hypotheses or 1,
        repetition_penalty=_or_one(options.repetition_penalty),
        no_repeat_ngram_size=options.no_repeat_ngram_size or 0,
        alternatives=bool(options.return_alternatives),
        suppressed_ids=(unknown,) if options.suppress_unknown else (),
        # Vocabularies have composed forms, which look the same.
        suppressed_phrases=tuple(
            dict.fromkeys(form.encode() for each in options.suppressed_phrases for form in (each, composed(each)))
        ),
        alignment=bool(options.return_alignment or options.replace_unknowns),
        scores=returns_score(options, beams) or bool(options.return_quality),
        shortlist=bool(options.use_shortlist),
    )
    if beams > 1:
        return replace(
            decoding,
            length_penalty=_or_one(options.length_penalty),
            early_stopping=bool(options.early_stopping),
            patience=_or_one(options.patience),
            coverage_penalty=options.coverage_penalty or 0.0,
        )
    if is_sampled(options):
        sampling = Sampling(
            seed=options.seed or 0,
            temperature=_or_one(options.temperature),
            top_k=options.top_k or 0,
            top_p=_or_one(options.top_p),
        )
        return replace(decoding, sampling=sampling)
    return decoding


def _max_length(options: Options, forced: int, tokens: TokenLimits) -> int:
    if options.max_length is not None:
        return options.max_length
    return min(tokens.default_max_length, tokens.target - forced)


def _or_one(value: float | None) -> float:
    """The value of an option whose default is 1."""
    return 1.0 if value is None else value
