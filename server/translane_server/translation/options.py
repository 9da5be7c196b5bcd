"""Options of requests: checked, and resolved to what decoding needs.

`limits` has already checked how long the options are, and how many. `resolved_options` has the checks that need tokens:
does the prefix fit, and can the vocabulary spell a term?
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from translane import options as plain
from translane.options import Options, float32
from translane_server.core.errors import FieldViolation
from translane_server.engine.options import DecodingOptions, RequiredPhrase, Sampling
from translane_server.engine.sequence import Sentence
from translane_server.text.characters import composed
from translane_server.text.glossary import Glossary, Term
from translane_server.text.tokenizer import Tokenizer
from translane_server.translation.limits import RequestLimits, TokenLimits
from translane_server.translation.segmentation import Segment
from translane_server.translation.terms import KeptTerms, Spelling

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
        max_beam_size: maximum number of beams, and of hypotheses.
        alignment: whether the model can align target tokens to source tokens.
        shortlist: whether the model has a shortlist.
    """

    tokens: TokenLimits
    max_beam_size: int
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
        "beam_size": Range(1, limits.max_beam_size),
        "num_hypotheses": Range(1, limits.max_beam_size),
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
    beams = min(search.beam_size or 1, limits.max_beam_size)
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
        beam_size(options, limits.max_beam_size),
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
        if limits.max_beam_size < 2:
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


_SEED_BITS = 64


@dataclass(frozen=True, slots=True)
class Returned:
    """What is returned of a hypothesis besides its text."""

    score: bool = False
    tokens: bool = False
    token_scores: bool = False
    alignment: bool = False
    quality: bool = False


@dataclass(frozen=True, slots=True)
class ResolvedOptions:
    """The options that all texts of a request share.

    Attributes:
        decoding: how each text is decoded. Its seed is for all texts, unless `own_seeds` is set.
        forced_ids: tokens that each translation starts with.
        language_tokens: how many of the first forced tokens name a language. They are no part of the text.
        word_follows: a word starts after the forced tokens.
        terms: the terms that translations must keep, if there are any.
        with_terms: how a sentence is decoded in which a term occurs; None if it is decoded as all others.
        own_seeds: each text is sampled with a seed of its own.
        replace_unknowns: an unknown token is replaced with the source text that it comes from.
        returned: what the caller asks for.
        aligns: the model can align, so that marks are put where the alignment says.
    """

    decoding: DecodingOptions
    forced_ids: tuple[int, ...] = ()
    language_tokens: int = 0
    word_follows: bool = False
    terms: KeptTerms | None = None
    with_terms: DecodingOptions | None = None
    own_seeds: bool = False
    replace_unknowns: bool = False
    returned: Returned = Returned()
    aligns: bool = False

    def sentence(self, segment: Segment) -> Sentence:
        """Return the sentence to decode for `segment`, and find the terms of `segment`."""
        decoding = self.decoding
        phrases: tuple[RequiredPhrase, ...] = ()
        if self.terms:
            segment.terms = self.terms.in_sentence(segment.text)
            phrases = segment.terms.phrases
            if phrases and self.with_terms:
                decoding = self.with_terms
        if self.own_seeds and decoding.sampling:
            decoding = replace(decoding, sampling=replace(decoding.sampling, seed=secrets.randbits(_SEED_BITS)))
        if segment.marked and segment.marked.marks and self.aligns:
            decoding = replace(decoding, alignment=True)
        return Sentence(
            segment.ids,
            decoding,
            forced_ids=self.forced_ids,
            # As in Hugging Face, lengths count a forced language token, and do not count a prompt of the decoder.
            counted_ids=len(self.forced_ids) if len(self.forced_ids) == self.language_tokens else 0,
            word_follows=self.word_follows,
            required_phrases=phrases,
        )


@dataclass(frozen=True)
class TermSources:
    """Where terms come from, besides the request.

    Attributes:
        language: the source language, a BCP-47 tag.
        stored: the stored glossaries that the request names, in its order.
        spelling: spells phrases for the model, for many requests; None makes another one.
    """

    language: str = ""
    stored: Sequence[Glossary] = ()
    spelling: Spelling | None = None


def resolve(
    options: Options,
    limits: OptionLimits,
    tokenizer: Tokenizer,
    unknown: int,
    language_ids: tuple[int, ...] = (),
    sources: TermSources = TermSources(),
) -> tuple[ResolvedOptions | None, list[FieldViolation]]:
    """Check `options` and resolve them, once for all texts of a request.

    Args:
        options: the options of a request.
        limits: the limits of the options.
        tokenizer: tokenizes the prefix and the terms.
        unknown: the target id of the unknown token.
        language_ids: tokens that translations start with, before the prefix.
        sources: where terms come from, besides the request.

    Returns:
        The resolved options, or None and what is wrong with them.
    """
    wrong = check_options(options, limits)
    if wrong:
        return None, wrong
    spelling = sources.spelling or Spelling(tokenizer, unknown)
    prefix, can_spell = spelling.ids(options.target_prefix or "")
    uncounted = len(language_ids) + len(prefix) if prefix else 0
    if not can_spell:
        problem = "has characters that the model's vocabulary cannot spell"
        wrong.append(FieldViolation("options.target_prefix", problem))
    wrong += _check_lengths(options, len(prefix), uncounted, limits.tokens)
    terms = [_term(term) for term in options.terminology]
    if options.suppressed_phrases:
        wrong += _check_contradictions(options.suppressed_phrases, terms, spelling)
    if wrong:
        return None, wrong
    kept = None
    if terms or sources.stored:
        own = Glossary(terms, sources.language)
        kept = KeptTerms(own, sources.stored, spelling, tuple(options.suppressed_phrases))

    def decoding(options: Options) -> DecodingOptions:
        scores = returns_score(options, limits.max_beam_size) or bool(options.return_quality)
        return _decoding(options, limits, uncounted, unknown, scores=scores)

    resolved = ResolvedOptions(
        decoding=decoding(_without_terms(options)),
        forced_ids=(*language_ids, *prefix),
        language_tokens=len(language_ids),
        word_follows=bool(prefix) and (options.target_prefix or "")[-1].isspace(),
        terms=kept,
        with_terms=decoding(options) if kept else None,
        own_seeds=options.seed is None,
        replace_unknowns=bool(options.replace_unknowns),
        returned=Returned(
            score=returns_score(options, limits.max_beam_size),
            tokens=bool(options.return_tokens),
            token_scores=bool(options.return_token_scores),
            alignment=bool(options.return_alignment),
            quality=bool(options.return_quality),
        ),
        aligns=limits.alignment,
    )
    return resolved, []


def _term(term: plain.Term) -> Term:
    return Term(term.source.strip(), term.target.strip(), term.ignore_case, term.inflected)


def _without_terms(options: Options) -> Options:
    """Return the options of a text in which no term occurs. Several hypotheses take the same beams in every text."""
    if not (options.terminology or options.glossaries) or (options.num_hypotheses or 1) > 1:
        return options
    return replace(options, terminology=(), glossaries=())


def _check_lengths(options: Options, prefix: int, uncounted: int, tokens: TokenLimits) -> list[FieldViolation]:
    """Check that the lengths fit. Of `uncounted` forced tokens, the request's target_prefix has `prefix` tokens."""
    room = tokens.target - uncounted
    if room < 1:
        problem = f"has {prefix} tokens, at most {tokens.target - 1 - (uncounted - prefix)} are accepted"
        return [FieldViolation("options.target_prefix", problem)]
    if (options.max_length or 0) > room:
        problem = f"is {options.max_length}, and there is room for {room} tokens after target_prefix"
        return [FieldViolation("options.max_length", problem)]
    most = _max_length(options, uncounted, tokens)
    if (options.min_length or 0) > most:
        problem = f"is {options.min_length}, and at most {most} tokens are generated"
        return [FieldViolation("options.min_length", problem)]
    return []


def _check_contradictions(phrases: Sequence[str], terms: Sequence[Term], spelling: Spelling) -> list[FieldViolation]:
    targets: dict[str, int] = {}
    for index, term in enumerate(terms):
        phrase = spelling.phrase(term.target)
        targets.setdefault(phrase.text.decode(errors="replace") if phrase else term.target, index)
    return [
        FieldViolation(f"options.suppressed_phrases[{index}]", f"occurs in terminology[{term}].target")
        for index, phrase in enumerate(phrases)
        for term in [next((number for target, number in targets.items() if phrase in target), None)]
        if term is not None
    ]


def _max_length(options: Options, uncounted: int, tokens: TokenLimits) -> int:
    if options.max_length is not None:
        return options.max_length
    return min(tokens.default_max_length, tokens.target - uncounted)


def _min_length(options: Options, max_length: int, tokens: TokenLimits) -> int:
    return min(tokens.default_min_length, max_length) if options.min_length is None else options.min_length


def _decoding(options: Options, limits: OptionLimits, uncounted: int, unknown: int, *, scores: bool) -> DecodingOptions:
    beams, sampled = beam_size(options, limits.max_beam_size), is_sampled(options)
    max_length = _max_length(options, uncounted, limits.tokens)
    decoding = DecodingOptions(
        max_length=max_length,
        min_length=_min_length(options, max_length, limits.tokens),
        beam_size=beams,
        num_hypotheses=options.num_hypotheses or 1,
        repetition_penalty=_or_one(options.repetition_penalty),
        no_repeat_ngram_size=options.no_repeat_ngram_size or 0,
        alternatives=bool(options.return_alternatives),
        suppressed_ids=(unknown,) if options.suppress_unknown else (),
        suppressed_phrases=_as_written(options.suppressed_phrases),
        alignment=bool(options.return_alignment or options.replace_unknowns),
        scores=scores,
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
    if sampled:
        sampling = Sampling(
            seed=options.seed or 0,
            temperature=_or_one(options.temperature),
            top_k=options.top_k or 0,
            top_p=_or_one(options.top_p),
        )
        return replace(decoding, sampling=sampling)
    return decoding


def _or_one(value: float | None) -> float:
    """The value of an option whose default is 1."""
    return 1.0 if value is None else value


def _as_written(phrases: Sequence[str]) -> tuple[bytes, ...]:
    """Return the phrases and their composed forms as UTF-8. Vocabularies have composed forms, which look the same."""
    forms = dict.fromkeys(form for phrase in phrases for form in (phrase, composed(phrase)))
    return tuple(form.encode() for form in forms)
