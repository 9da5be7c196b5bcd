"""Request plans: how texts are translated, which requests with the same languages and options share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from translane.options import Options
from translane.requests import TranslationRequest
from translane_server.bundle.manifest import Manifest
from translane_server.core.errors import FieldViolation
from translane_server.core.quality_estimate import UNCALIBRATED, Calibration
from translane_server.text.characters import spaces_words
from translane_server.text.glossary import Glossary
from translane_server.text.language_tags import standard_tag
from translane_server.text.placeholders import PreservePatternError, PreservePatterns
from translane_server.text.stored_glossaries import StoredGlossaries
from translane_server.text.tokenizer import Tokenizer
from translane_server.translation.answers import TranslationBuilder
from translane_server.translation.languages import LanguagePairs
from translane_server.translation.limits import RequestLimits, option_characters, splitting
from translane_server.translation.option_checks import OptionLimits, check_options, search_options, with_defaults
from translane_server.translation.resolved_options import TermSources, resolve
from translane_server.translation.segmentation import Segmentation
from translane_server.translation.terms import Spelling

# How many plans are remembered, and the maximum size of their options [characters].
_PLANS = 128
_PLAN_CHARACTERS = 4096

_NO_GLOSSARIES = StoredGlossaries()


@dataclass(frozen=True)
class RequestPlan:
    """How texts are translated. Requests with the same languages and options have the same plan.

    Attributes:
        segmentation: cuts texts into sentences.
        builder: builds translations as the options say; None if something is wrong with the options.
        wrong: what is wrong with the languages and the options.
        target_language: a standard tag.
    """

    segmentation: Segmentation
    builder: TranslationBuilder | None
    wrong: Sequence[FieldViolation]
    target_language: str


class RequestPlans:
    """Finds the plan of each request to one model, and remembers it.

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
        self._remembered = lru_cache(_PLANS)(self._new)

    def of(self, request: TranslationRequest) -> RequestPlan:
        """Return the plan of a request."""
        options = request.options
        # Compiled patterns keep what they have seen in memory, so they are not remembered.
        is_remembered = not options.preserve and option_characters(options) <= _PLAN_CHARACTERS
        plan_of = self._remembered if is_remembered else self._new
        return plan_of(request.source_language, request.target_language, options, self._stored_for(request))

    def check(self, request: TranslationRequest) -> list[FieldViolation]:
        """Return what is wrong with the languages and options of a request, as far as can be found without tokens."""
        _, wrong = self._pairs.find(request.source_language, request.target_language)
        return [*wrong, *check_options(with_defaults(request.options, self._defaults), self._options)]

    def _stored_for(self, request: TranslationRequest) -> StoredGlossaries:
        """Return the glossaries of the server, if the request names any. RequestPlans with older ones are forgotten."""
        if not request.options.glossaries:
            return _NO_GLOSSARIES
        stored = self._stored()
        if stored is not self._remembered_with:
            self._remembered_with = stored
            self._remembered.cache_clear()
        return stored

    def _new(
        self, source_language: str, target_language: str, options: Options, stored: StoredGlossaries
    ) -> RequestPlan:
        """Return the plan of requests with these languages and options."""
        options = with_defaults(options, self._defaults)
        pair, wrong = self._pairs.find(source_language, target_language)
        ids = self._special_ids
        source, language = standard_tag(source_language or pair.source), standard_tag(target_language or pair.target)
        glossaries, wrong_glossaries = _named(options.glossaries, stored, source, language)
        terms = TermSources(source, glossaries, self._spelling)
        resolved, wrong_options = resolve(options, self._options, pair.tokenizer, ids.unk, pair.forced_ids, terms)
        patterns, wrong_patterns = _patterns(options.preserve)
        segmentation = Segmentation(
            pair,
            source,
            ids.unk,
            splits=splitting(options),
            preserves=options.preserve_untranslatable is not False,
            patterns=patterns,
            tokens=self._options.tokens,
        )
        builder = None
        if resolved:
            builder = TranslationBuilder(pair, ids, resolved, self._calibration, spaced=spaces_words(language))
        named_wrong = [] if wrong else wrong_glossaries
        return RequestPlan(segmentation, builder, [*wrong, *wrong_options, *named_wrong, *wrong_patterns], language)


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
