"""Manners: how texts are translated, which requests with the same languages and options share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from translane.v1 import translation_pb2 as pb
from translane_server.errors import FieldViolation
from translane_server.manifest import Manifest
from translane_server.quality_estimate import UNCALIBRATED, Calibration
from translane_server.requests.cutting import Cutting
from translane_server.requests.language_pairs import LanguagePairs
from translane_server.requests.limits import RequestLimits, TranslationRequest, splitting
from translane_server.requests.model_defaults import search_options, with_defaults
from translane_server.requests.option_checks import OptionLimits, check_options
from translane_server.requests.resolved_options import TermSources, resolve
from translane_server.requests.responses import TranslationBuilder
from translane_server.requests.spelling import Spelling
from translane_server.text.glossary import Glossary
from translane_server.text.language_tags import standard_tag
from translane_server.text.preserve_patterns import PreservePatternError, PreservePatterns
from translane_server.text.spacing import spaces_words
from translane_server.text.stored_glossaries import StoredGlossaries
from translane_server.text.tokenizer import Tokenizer

# How many manners are remembered, and the maximum size of their options [bytes].
_MANNERS = 128
_MANNER_BYTES = 4096

_NO_GLOSSARIES = StoredGlossaries()


@dataclass(frozen=True)
class Manner:
    """How texts are translated. Requests with the same languages and options have the same manner.

    Attributes:
        cutting: cuts texts into sentences.
        builder: builds messages as the options say; None if something is wrong with the options.
        wrong: what is wrong with the languages and the options.
        target_language: a standard tag.
    """

    cutting: Cutting
    builder: TranslationBuilder | None
    wrong: Sequence[FieldViolation]
    target_language: str


class Manners:
    """Finds the manner of each request to one model, and remembers it.

    Args:
        manifest: the model's manifest.
        tokenizer: the model's tokenizer.
        limits: the limits of every request.
        stored: returns the glossaries of the server. They are other ones after a change.
    """

    def __init__(
        self, manifest: Manifest, tokenizer: Tokenizer, limits: RequestLimits, stored: Callable[[], StoredGlossaries]
    ) -> None:
        self._pairs = LanguagePairs(manifest.languages, tokenizer)
        self._special_ids = manifest.special_ids
        self._defaults = search_options(limits)
        self._options = OptionLimits(
            limits.tokens, limits.beam_size, manifest.alignment is not None, manifest.shortlist is not None
        )
        self._spelling = Spelling(tokenizer, manifest.special_ids.unk)
        self._stored = stored
        self._remembered_with = _NO_GLOSSARIES
        estimation = manifest.quality_estimation
        self._calibration = Calibration(estimation.weight, estimation.bias) if estimation else UNCALIBRATED
        self._remembered = lru_cache(_MANNERS)(self._new)

    def of(self, request: TranslationRequest) -> Manner:
        """Return the manner of a request."""
        options = request.options.SerializeToString()
        # Compiled patterns keep what they have seen in memory, so they are not remembered.
        is_remembered = len(options) <= _MANNER_BYTES and not request.options.preserve
        manner_of = self._remembered if is_remembered else self._new
        return manner_of(request.source_language, request.target_language, options, self._stored_for(request))

    def check(self, request: TranslationRequest) -> list[FieldViolation]:
        """Return what is wrong with the languages and options of a request, as far as can be found without tokens."""
        _, wrong = self._pairs.find(request.source_language, request.target_language)
        return [*wrong, *check_options(with_defaults(request.options, self._defaults), self._options)]

    def _stored_for(self, request: TranslationRequest) -> StoredGlossaries:
        """Return the glossaries of the server, if the request names any. Manners with older ones are forgotten."""
        if not request.options.glossaries:
            return _NO_GLOSSARIES
        stored = self._stored()
        if stored is not self._remembered_with:
            self._remembered_with = stored
            self._remembered.cache_clear()
        return stored

    def _new(
        self, source_language: str, target_language: str, serialized_options: bytes, stored: StoredGlossaries
    ) -> Manner:
        """Return the manner of requests with these languages and options.

        Equal options may be serialized differently. Such options have separate manners with equal content.
        """
        options = with_defaults(pb.DecodingOptions.FromString(serialized_options), self._defaults)
        pair, wrong = self._pairs.find(source_language, target_language)
        ids = self._special_ids
        source, language = standard_tag(source_language or pair.source), standard_tag(target_language or pair.target)
        glossaries, wrong_glossaries = _named(options.glossaries, stored, source, language)
        terms = TermSources(source, glossaries, self._spelling)
        resolved, wrong_options = resolve(options, self._options, pair.tokenizer, ids.unk, pair.forced_ids, terms)
        patterns, wrong_patterns = _patterns(options.preserve)
        cutting = Cutting(
            pair,
            source,
            ids.unk,
            splits=splitting(options),
            preserves=options.preserve_untranslatable or not options.HasField("preserve_untranslatable"),
            patterns=patterns,
            tokens=self._options.tokens,
        )
        builder = None
        if resolved:
            builder = TranslationBuilder(pair, ids, resolved, self._calibration, spaced=spaces_words(language))
        named_wrong = [] if wrong else wrong_glossaries
        return Manner(cutting, builder, [*wrong, *wrong_options, *named_wrong, *wrong_patterns], language)


def _patterns(patterns: Sequence[str]) -> tuple[PreservePatterns, list[FieldViolation]]:
    """Return what a request preserves, and what is wrong with its patterns."""
    try:
        return PreservePatterns(patterns), []
    except PreservePatternError as error:
        return PreservePatterns(()), [FieldViolation(f"options.preserve[{error.number}]", str(error))]


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
            problem = stored.problem(name, source, target)
            wrong.append(FieldViolation(f"options.glossaries[{number}]", problem))
    return list(found.values()), wrong
