"""Request plans: all that requests with the same languages and options have in common; and what texts become."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import lru_cache

from translane.options import Options, Term
from translane.requests import TranslationRequest
from translane.results import Treatment
from translane_server.bundle.manifest import Manifest, SpecialIds
from translane_server.core.errors import FieldViolation
from translane_server.core.quality import UNCALIBRATED, Calibration
from translane_server.engine.options import DecodingOptions, RequiredPhrase
from translane_server.engine.sequence import Sentence
from translane_server.text.characters import target_gaps
from translane_server.text.glossaries import StoredGlossaries
from translane_server.text.glossary import Glossary
from translane_server.text.language_tags import standard_tag
from translane_server.text.marked_text import MarkedText
from translane_server.text.markup.document import Document
from translane_server.text.numbers import certain_numbers
from translane_server.text.placeholders import PreservePatternError, PreservePatterns, Span, may_preserve
from translane_server.text.sentences import maybe_several
from translane_server.text.stand_ins import NamesAndNumbers
from translane_server.text.tokenizer import Tokenizer
from translane_server.translation.languages import LanguagePair, LanguagePairs
from translane_server.translation.limits import (
    CHARACTERS_PER_TOKEN,
    RequestLimits,
    TokenLimits,
    option_characters,
    splitting,
)
from translane_server.translation.options import (
    beam_size,
    check_lengths,
    check_options,
    decoding_options,
    returns_score,
    search_options,
    violation,
    with_defaults,
)
from translane_server.translation.terms import FoundTerm, KeptTerms, Spelling, required_phrases

# How many plans are remembered, and the maximum size of their options [characters].
_PLANS = 128
_PLAN_CHARACTERS = 4096

_SEED_BITS = 64
_NO_GLOSSARIES = StoredGlossaries()


@dataclass(slots=True)
class Segment:
    """A sentence to translate, as it was cut, and as its translation needs it."""

    text: str
    ids: Sequence[int]  # its tokens
    # the part of the text that each token stands for; None until somebody needs them
    spans: Sequence[Span | None] | None = None
    # the text and its marks, which are put into the translation; None if nothing was taken out of it
    marked: MarkedText | None = None
    escape: Callable[[str], str] = str  # makes translated text fit the format of the request
    terms: Sequence[FoundTerm] = ()  # the terms of the request that occur in it
    stand_ins: Mapping[int, str] = field(default_factory=dict)  # what each stand-in stands for, by its target token
    otherwise: Segment | None = None  # the same sentence without stand-ins, if it has any
    spelled: Sequence[str] = ()  # names and numbers that have stand-ins elsewhere, and that the model spells here
    numbers: Mapping[str, Set[str]] = field(default_factory=dict)  # that its translation must have
    attempts: int = 1  # how often it was decoded
    missing: int = 0  # how many of the numbers its translation lacks
    # whether every such request gets this translation, so that the cache may keep it; not if a second decoding was
    # refused, has failed, or had to go on from what a stream has sent
    is_settled: bool = True

    @property
    def has_to_keep(self) -> bool:
        """Whether its translation is looked at, as it must have stand-ins or numbers."""
        return bool(self.stand_ins or self.spelled or self.numbers)

    def become(self, other: Segment) -> None:
        """Become the same sentence, as it was decoded in the end."""
        self.text, self.ids, self.spans, self.marked = other.text, other.ids, other.spans, other.marked
        self.terms, self.numbers = other.terms, other.numbers
        self.stand_ins, self.otherwise = other.stand_ins, other.otherwise


@dataclass(slots=True)
class PreparedText:
    """A text as sentences to decode: at most one sentence, unless the text was cut."""

    segments: Sequence[Segment]
    # for each block of the text, which has n sentences, the n + 1 texts before, between and after them; None if the
    # text is one sentence as it is.
    gaps: Sequence[Sequence[str]] | None = None
    # what the translations of the blocks are put into; None for plain text, which is one block
    document: Document | None = None
    treatment: Treatment | None = None  # what was done with the text; None if nothing was
    written: str | None = None  # the text as it was written, if something of it may have been preserved

    def join(self, translations: Sequence[str], target_language: str) -> str:
        """Join the translations of the sentences of a text that was cut."""
        blocks = []
        done = 0
        for gaps in self.gaps or ():
            first, *others = target_gaps(gaps, target_language)
            texts = translations[done : done + len(others)]
            done += len(others)
            blocks.append(first + "".join(text + gap for text, gap in zip(texts, others, strict=True)))
        return self.document.render(blocks) if self.document else "".join(blocks)

    def stream_gaps(self, target_language: str) -> list[str] | None:
        """Return what a stream sends before, between and after the sentences; None if it sends the text at its end."""
        if self.gaps is None:
            return [""] * (len(self.segments) + 1)
        return None if self.document else target_gaps(self.gaps[0], target_language)


@dataclass(frozen=True, eq=False)
class RequestPlan:
    """How texts are translated. Requests with the same languages and options have the same plan."""

    pair: LanguagePair  # tokenizes sources
    source_language: str  # a standard tag
    target_language: str  # a standard tag
    options: Options  # the options of the request, and the model's defaults
    tokens: TokenLimits
    special_ids: SpecialIds
    calibration: Calibration  # of the estimated quality
    spelling: Spelling  # spells phrases that a translation must have
    patterns: PreservePatterns | None  # the request's patterns of what is kept, if it has any
    # whether texts are cut into sentences; None cuts only texts that have several sentences or are too long
    splits: bool | None
    preserves: bool  # whether rules find what is kept, and unknown characters are kept
    returns_score: bool  # whether the caller gets scores
    aligns: bool  # whether the model can align, so that marks are put where the alignment says
    stand_ins: Mapping[int, str] = field(default_factory=dict)  # the model's stand-ins, by their target tokens
    unused_stand_ins: Mapping[int, str] = field(default_factory=dict)  # those that nothing is put back for
    names_and_numbers: NamesAndNumbers | None = None  # finds what else becomes a stand-in; None for a model without any
    most_beams: int = 1  # as many beams as a sentence may take
    wrong: Sequence[FieldViolation] = ()  # what is wrong with the languages and the options
    # how each sentence is decoded; None if something is wrong with the options. So is what follows.
    decoding: DecodingOptions | None = None
    with_terms: DecodingOptions | None = None  # how a sentence is decoded in which a term occurs
    terms: KeptTerms | None = None  # the terms that translations must keep, if there are any
    # tokens that each translation starts with. The first of them, those of the pair, name a language, and are no part
    # of the text.
    forced_ids: tuple[int, ...] = ()
    # how many of the last forced tokens the lengths count. As in Hugging Face, they count a forced language token, and
    # do not count a prompt of the decoder.
    counted_ids: int = 0
    word_follows: bool = False  # whether a word starts after the forced tokens

    def is_plain(self, text: str) -> bool:
        """Whether `text` is one sentence in which nothing is kept, as far as can be told without tokens."""
        return not (
            self.splits
            or self.patterns
            or (self.splits is None and (len(text) > CHARACTERS_PER_TOKEN * self.tokens.source or maybe_several(text)))
            or (self.preserves and may_preserve(text))
            or (self.names_and_numbers and self.names_and_numbers.may_be_in(text))
        )

    def stay_whole(self, encoded: Sequence[Sequence[int]]) -> bool:
        """Whether plain texts with these tokens are sentences as they are."""
        if self.splits is None and max(map(len, encoded), default=0) > self.tokens.source:
            return False
        unknown = self.special_ids.unk
        return not (self.preserves and any(unknown in ids for ids in encoded))

    def sentence(self, segment: Segment) -> Sentence:
        """Return the sentence to decode for `segment`, and find its terms and numbers. Nothing is `wrong`."""
        decoding = self.decoding
        assert decoding, "options without fault are resolved"
        if self.options.check_numbers:
            numbers, forbidden = certain_numbers(segment.text), self.options.suppressed_phrases
            segment.numbers = {
                each: numbers[each] for each in numbers if not any(phrase in each for phrase in forbidden)
            }
        phrases: tuple[RequiredPhrase, ...] = ()
        if self.terms:
            segment.terms = self.terms.in_sentence(segment.text)
            phrases = required_phrases(segment.terms)
            if phrases and self.with_terms:
                decoding = self.with_terms
        if self.tokens.default_factor and self.options.max_length is None:
            decoding = _shortened(decoding, max(1, int(self.tokens.default_factor * len(segment.ids))))
        if decoding.sampling and self.options.seed is None:
            seed = secrets.randbits(_SEED_BITS)
            decoding = replace(decoding, sampling=replace(decoding.sampling, seed=seed))
        if unasked := [token for token, symbol in self.unused_stand_ins.items() if symbol not in segment.text]:
            decoding = replace(decoding, suppressed_ids=(*decoding.suppressed_ids, *unasked))
        if segment.marked and segment.marked.marks and self.aligns:
            decoding = replace(decoding, alignment=True)
        if segment.numbers and decoding.beam_size > 1:  # another hypothesis may have what the best one lacks
            decoding = replace(decoding, num_hypotheses=decoding.beam_size)
        return Sentence(segment.ids, decoding, self.forced_ids, self.counted_ids, self.word_follows, phrases)


@lru_cache(1024)
def _shortened(decoding: DecodingOptions, length: int) -> DecodingOptions:
    """The options with `max_length` of at most `length`; a request's `min_length` is generated all the same."""
    return replace(decoding, max_length=min(decoding.max_length, max(length, decoding.min_length)))


class RequestPlans:
    """Finds the plan of each request to one model, and remembers it. For the arguments see `TranslateReader`."""

    def __init__(
        self,
        manifest: Manifest,
        tokenizer: Tokenizer,
        limits: RequestLimits,
        stored: Callable[[], StoredGlossaries] = StoredGlossaries,
    ) -> None:
        self._manifest = manifest
        self._pairs = LanguagePairs(manifest.languages, tokenizer)
        self._limits = limits
        self._defaults = search_options(limits)
        self._spelling = Spelling(tokenizer, manifest.special_ids.unk)
        self._stand_ins = tokenizer.stand_ins(manifest.stand_ins) if manifest.stand_ins else {}
        self._stored = stored
        self._remembered_with = _NO_GLOSSARIES
        estimation = manifest.quality_estimation
        self._calibration = Calibration(estimation.weight, estimation.bias) if estimation else UNCALIBRATED
        self._remembered = lru_cache(_PLANS)(self._new)

    def of(self, request: TranslationRequest) -> RequestPlan:
        """Return the plan of a request. Plans with other stored glossaries than those of now are forgotten."""
        options, stored = request.options, _NO_GLOSSARIES
        if options.glossaries:
            stored = self._stored()
            if stored is not self._remembered_with:
                self._remembered_with = stored
                self._remembered.cache_clear()
        # Compiled patterns keep what they have seen in memory, so they are not remembered.
        is_remembered = not options.preserve and option_characters(options) <= _PLAN_CHARACTERS
        plan_of = self._remembered if is_remembered else self._new
        return plan_of(request.source_language, request.target_language, options, stored)

    def check(self, request: TranslationRequest) -> list[FieldViolation]:
        """Return what is wrong with the languages and options of a request, as far as can be found without tokens."""
        _, wrong = self._pairs.find(request.source_language, request.target_language)
        options = with_defaults(request.options, self._defaults)
        return [*wrong, *check_options(options, self._limits, self._manifest)]

    def _new(
        self, source_language: str, target_language: str, options: Options, stored: StoredGlossaries
    ) -> RequestPlan:
        """Return the plan of requests with these languages and options."""
        options = with_defaults(options, self._defaults)
        pair, wrong = self._pairs.find(source_language, target_language)
        source, target = standard_tag(source_language or pair.source), standard_tag(target_language or pair.target)
        glossaries, wrong_names = _named(options.glossaries, stored, source, target)
        wrong_options = check_options(options, self._limits, self._manifest)
        patterns, wrong_patterns = None, []
        try:
            patterns = PreservePatterns(options.preserve) if options.preserve else None
        except PreservePatternError as error:
            wrong_patterns = [violation(f"preserve[{error.number}]", str(error))]
        plan = RequestPlan(
            pair,
            source,
            target,
            options,
            self._limits.tokens,
            self._manifest.special_ids,
            self._calibration,
            self._spelling,
            patterns,
            splits=splitting(options),
            preserves=options.preserve_untranslatable is not False,
            returns_score=returns_score(options, beam_size(options, self._limits)),
            aligns=self._manifest.alignment is not None,
            most_beams=self._limits.max_beam_size,
        )
        forbidden = options.suppressed_phrases
        given = [options.target_prefix or "", *(term.target for term in options.terminology)]
        # A shortlist lacks stand-ins, what the caller gives is written as it is, and what it forbids is not written.
        unusable = options.use_shortlist or any(
            any(symbol in text for text in given) or any(phrase in symbol or symbol in phrase for phrase in forbidden)
            for symbol in self._stand_ins.values()
        )
        if not (plan.preserves or patterns):
            unused = {token: each for token, each in self._stand_ins.items() if not any(each in text for text in given)}
            plan = replace(plan, unused_stand_ins=unused)
        elif self._stand_ins and not unusable:
            names_and_numbers = NamesAndNumbers(source, target, forbidden) if plan.preserves else None
            plan = replace(plan, stand_ins=self._stand_ins, names_and_numbers=names_and_numbers)
        if not wrong_options:
            plan, wrong_options = self._resolved(plan, glossaries)
        return replace(plan, wrong=[*wrong, *wrong_options, *([] if wrong else wrong_names), *wrong_patterns])

    def _resolved(self, plan: RequestPlan, glossaries: Sequence[Glossary]) -> tuple[RequestPlan, list[FieldViolation]]:
        """Return a plan with what needs tokens, and what is wrong with the options where tokens show it."""
        options, limits, unknown = plan.options, self._limits, self._manifest.special_ids.unk
        languages, (prefix, can_spell) = plan.pair.forced_ids, self._spelling.ids(options.target_prefix or "")
        uncounted = len(languages) + len(prefix) if prefix else 0
        wrong = []
        if not can_spell:
            wrong.append(violation("target_prefix", "has characters that the model's vocabulary cannot spell"))
        wrong += check_lengths(options, len(prefix), uncounted, limits.tokens)
        terms = [each._replace(source=each.source.strip(), target=each.target.strip()) for each in options.terminology]
        if options.suppressed_phrases:
            wrong += self._contradictions(options.suppressed_phrases, terms)
        if wrong:
            return plan, wrong
        kept = None
        if terms or glossaries:
            own = Glossary(terms, plan.source_language)
            kept = KeptTerms(own, glossaries, self._spelling, options.suppressed_phrases, plan.source_language)
        resolved = replace(
            plan,
            decoding=decoding_options(options, limits, uncounted, unknown, terms=False),
            with_terms=decoding_options(options, limits, uncounted, unknown, terms=True) if kept else None,
            terms=kept,
            forced_ids=(*languages, *prefix),
            counted_ids=0 if prefix else len(languages),
            word_follows=bool(prefix) and (options.target_prefix or "")[-1].isspace(),
        )
        return resolved, []

    def _contradictions(self, phrases: Sequence[str], terms: Sequence[Term]) -> list[FieldViolation]:
        """Return a violation for each suppressed phrase that occurs in the target of a term."""
        targets: dict[str, int] = {}
        for index, term in enumerate(terms):
            phrase = self._spelling.phrase(term.target)
            targets.setdefault(phrase.text.decode(errors="replace") if phrase else term.target, index)
        return [
            violation(f"suppressed_phrases[{index}]", f"occurs in terminology[{term}].target")
            for index, phrase in enumerate(phrases)
            for term in [next((number for target, number in targets.items() if phrase in target), None)]
            if term is not None
        ]


def _named(
    names: Sequence[str], stored: StoredGlossaries, source: str, target: str
) -> tuple[list[Glossary], list[FieldViolation]]:
    """Return the glossaries of these names for two languages, each once, and a violation for each that is not there."""
    found: dict[str, Glossary] = {}
    wrong = []
    for number, name in enumerate(names):
        if glossary := stored.find(name, source, target):
            found[name] = glossary
        else:
            wrong.append(violation(f"glossaries[{number}]", stored.problem(name, source, target)))
    return list(found.values()), wrong
