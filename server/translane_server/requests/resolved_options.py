"""Resolves the protocol's DecodingOptions and their defaults to numbers, ids and bytes for decoding."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from translane.v1 import translation_pb2 as pb
from translane_server.errors import FieldViolation
from translane_server.options import DecodingOptions, RequiredPhrase, Sampling
from translane_server.requests.limits import TokenLimits
from translane_server.requests.option_checks import OptionLimits, beam_size, check_options, is_sampled, returns_score
from translane_server.sentence import Sentence
from translane_server.text.glossary import Glossary, Term
from translane_server.text.normal_form import composed
from translane_server.text.tokenizer import Tokenizer

# Maximum terms of one sentence: each term takes a share of the beams.
MAX_TERMS_OF_SENTENCE = 16

_SEED_BITS = 64


@dataclass(slots=True)
class Source:
    """A sentence to translate.

    Attributes:
        text: the sentence.
        ids: its tokens.
        surfaces: the part of the text that each token stands for; None until somebody needs them.
    """

    text: str
    ids: Sequence[int]
    surfaces: Sequence[str] | None = None


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
        glossary: the terms that translations must keep.
        own_seeds: each text is sampled with a seed of its own.
        replace_unknowns: an unknown token is replaced with the source text that it comes from.
        returned: what the caller asks for.
    """

    decoding: DecodingOptions
    forced_ids: tuple[int, ...] = ()
    language_tokens: int = 0
    word_follows: bool = False
    glossary: Glossary = field(default_factory=Glossary)
    own_seeds: bool = False
    replace_unknowns: bool = False
    returned: Returned = Returned()

    def sentence(self, source: Source) -> Sentence:
        """Return the sentence to decode for `source`."""
        decoding = self.decoding
        if self.own_seeds and decoding.sampling:
            decoding = replace(decoding, sampling=replace(decoding.sampling, seed=secrets.randbits(_SEED_BITS)))
        return Sentence(
            source.ids,
            decoding,
            forced_ids=self.forced_ids,
            # As in Hugging Face, lengths count a forced language token, and do not count a prompt of the decoder.
            counted_ids=len(self.forced_ids) if len(self.forced_ids) == self.language_tokens else 0,
            word_follows=self.word_follows,
            required_phrases=self.glossary.required(source.text, MAX_TERMS_OF_SENTENCE),
        )


def resolve(
    options: pb.DecodingOptions,
    limits: OptionLimits,
    tokenizer: Tokenizer,
    unknown: int,
    language_ids: tuple[int, ...] = (),
) -> tuple[ResolvedOptions | None, list[FieldViolation]]:
    """Check `options` and resolve them, once for all texts of a request.

    Args:
        options: the options of a request.
        limits: the limits of the options.
        tokenizer: tokenizes the prefix and the terms.
        unknown: the target id of the unknown token.
        language_ids: tokens that translations start with, before the prefix.

    Returns:
        The resolved options, or None and what is wrong with them.
    """
    wrong = check_options(options, limits)
    if wrong:
        return None, wrong
    spelling = _Spelling(tokenizer, unknown)
    prefix = spelling.ids(options.target_prefix, "target_prefix")
    terms = [
        Term(term.source.strip(), spelling.phrase(term.target.strip(), f"terminology[{index}].target"))
        for index, term in enumerate(options.terminology)
    ]
    uncounted = len(language_ids) + len(prefix) if prefix else 0
    wrong = [*spelling.wrong, *_check_lengths(options, len(prefix), uncounted, limits.tokens)]
    wrong += _check_contradictions(options.suppressed_phrases, terms)
    if wrong:
        return None, wrong
    scored = returns_score(options, limits.beam_size)
    resolved = ResolvedOptions(
        decoding=_decoding(options, limits, uncounted, unknown, scores=scored or options.return_quality),
        forced_ids=(*language_ids, *prefix),
        language_tokens=len(language_ids),
        word_follows=bool(prefix) and options.target_prefix[-1].isspace(),
        glossary=Glossary(terms),
        own_seeds=not options.HasField("seed"),
        replace_unknowns=options.replace_unknowns,
        returned=Returned(
            score=scored,
            tokens=options.return_tokens,
            token_scores=options.return_token_scores,
            alignment=options.return_alignment,
            quality=options.return_quality,
        ),
    )
    return resolved, []


def check_sentences(sentences: Iterable[tuple[str, Sentence]]) -> list[FieldViolation]:
    """Return a violation for each sentence with too many terms. Each sentence comes with the name of its field."""
    return [
        FieldViolation(
            name,
            f"has more than {MAX_TERMS_OF_SENTENCE} terms of options.terminology, the most that a sentence can keep",
        )
        for name, sentence in sentences
        if len(sentence.required_phrases) > MAX_TERMS_OF_SENTENCE
    ]


class _Spelling:
    """Tokenizes texts, and collects violations for texts that cannot be spelled."""

    def __init__(self, tokenizer: Tokenizer, unknown: int) -> None:
        self._tokenizer = tokenizer
        self._unknown = unknown
        self.wrong: list[FieldViolation] = []

    def ids(self, text: str, name: str) -> tuple[int, ...]:
        if not text:
            return ()
        (ids,) = self._tokenizer.encode_target([text])
        if self._unknown in ids:
            self.wrong.append(
                FieldViolation(f"options.{name}", "has characters that the model's vocabulary cannot spell")
            )
        return tuple(ids)

    def phrase(self, text: str, name: str) -> RequiredPhrase:
        ids = self.ids(text, name)
        (spelled,) = self._tokenizer.decode([ids])
        if not spelled:
            self.wrong.append(FieldViolation(f"options.{name}", "has no characters that the model writes"))
        return RequiredPhrase(spelled.strip().encode(), ids)


def _check_lengths(
    options: pb.DecodingOptions, prefix: int, uncounted: int, tokens: TokenLimits
) -> list[FieldViolation]:
    """Check that the lengths fit. Of `uncounted` forced tokens, the request's target_prefix has `prefix` tokens."""
    room = tokens.target - uncounted
    if room < 1:
        problem = f"has {prefix} tokens, at most {tokens.target - 1 - (uncounted - prefix)} are accepted"
        return [FieldViolation("options.target_prefix", problem)]
    if options.max_length > room:
        problem = f"is {options.max_length}, and there is room for {room} tokens after target_prefix"
        return [FieldViolation("options.max_length", problem)]
    most = _max_length(options, uncounted, tokens)
    if options.min_length > most:
        problem = f"is {options.min_length}, and at most {most} tokens are generated"
        return [FieldViolation("options.min_length", problem)]
    return []


def _check_contradictions(phrases: Sequence[str], terms: Sequence[Term]) -> list[FieldViolation]:
    targets = {term.phrase.text.decode(errors="replace"): index for index, term in reversed(list(enumerate(terms)))}
    return [
        FieldViolation(f"options.suppressed_phrases[{index}]", f"occurs in terminology[{term}].target")
        for index, phrase in enumerate(phrases)
        for term in [next((number for target, number in targets.items() if phrase in target), None)]
        if term is not None
    ]


def _max_length(options: pb.DecodingOptions, uncounted: int, tokens: TokenLimits) -> int:
    if options.HasField("max_length"):
        return options.max_length
    return min(tokens.default_max_length, tokens.target - uncounted)


def _decoding(
    options: pb.DecodingOptions, limits: OptionLimits, uncounted: int, unknown: int, *, scores: bool
) -> DecodingOptions:
    beams, sampled = beam_size(options, limits.beam_size), is_sampled(options)
    decoding = DecodingOptions(
        max_length=_max_length(options, uncounted, limits.tokens),
        min_length=options.min_length,
        beam_size=beams,
        num_hypotheses=options.num_hypotheses or 1,
        repetition_penalty=_or_one(options, "repetition_penalty"),
        no_repeat_ngram_size=options.no_repeat_ngram_size,
        alternatives=options.return_alternatives,
        suppressed_ids=(unknown,) if options.suppress_unknown else (),
        suppressed_phrases=_as_written(options.suppressed_phrases),
        alignment=options.return_alignment or options.replace_unknowns,
        scores=scores,
    )
    if beams > 1:
        return replace(
            decoding,
            length_penalty=_or_one(options, "length_penalty"),
            early_stopping=options.early_stopping,
            patience=_or_one(options, "patience"),
            coverage_penalty=options.coverage_penalty,
        )
    if sampled:
        sampling = Sampling(
            seed=options.seed,
            temperature=_or_one(options, "temperature"),
            top_k=options.top_k,
            top_p=_or_one(options, "top_p"),
        )
        return replace(decoding, sampling=sampling)
    return decoding


def _or_one(options: pb.DecodingOptions, name: str) -> float:
    """The value of an option whose default is 1."""
    return float(getattr(options, name)) if options.HasField(name) else 1.0


def _as_written(phrases: Sequence[str]) -> tuple[bytes, ...]:
    """Return the phrases and their composed forms as UTF-8. Vocabularies have composed forms, which look the same."""
    forms = dict.fromkeys(form for phrase in phrases for form in (phrase, composed(phrase)))
    return tuple(form.encode() for form in forms)
