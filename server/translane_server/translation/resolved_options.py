"""Resolves options and their defaults to numbers, ids and bytes for decoding."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace

from translane import options as plain
from translane.options import Options
from translane_server.core.errors import FieldViolation
from translane_server.engine.options import DecodingOptions, RequiredPhrase, Sampling
from translane_server.engine.sequence import Sentence
from translane_server.text.characters import composed
from translane_server.text.glossary import Glossary, Term
from translane_server.text.tokenizer import Tokenizer
from translane_server.translation.limits import TokenLimits
from translane_server.translation.option_checks import OptionLimits, beam_size, check_options, is_sampled, returns_score
from translane_server.translation.segmentation import Segment
from translane_server.translation.terms import KeptTerms, Spelling

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
        scores = returns_score(options, limits.beam_size) or bool(options.return_quality)
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
            score=returns_score(options, limits.beam_size),
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
    beams, sampled = beam_size(options, limits.beam_size), is_sampled(options)
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
