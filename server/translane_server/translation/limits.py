"""Limits of requests. Everything that a caller can make long is measured here, before anything else looks at it."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from dataclasses import dataclass, field
from typing import Protocol

from translane.options import Options
from translane.requests import ScoringRequest, TranslationRequest
from translane_server.bundle.manifest import LONGEST_MODEL_NAME, Manifest, SearchDefaults
from translane_server.core.budget import Budget
from translane_server.core.errors import FieldViolation, InvalidRequestError, SettingsError
from translane_server.settings.server_settings import ModelSettings
from translane_server.text.language_tags import LONGEST_TAG

# Each phrase or term costs time in every step of its sentences, or in every request.
MAX_SUPPRESSED_PHRASES = 64
MAX_PHRASE_CHARACTERS = 128
MAX_TERMS = 1024
MAX_PRESERVE_PATTERNS = 32
MAX_PATTERN_CHARACTERS = 512
MAX_GLOSSARIES = 8
MAX_GLOSSARY_NAME = 100  # characters

# A text with more characters than this for each allowed token is refused before it is tokenized. Tokenizing megabytes
# takes a second, and no real text has such long tokens.
CHARACTERS_PER_TOKEN = 64

# Default limit of source and target lengths [tokens]. A larger capacity of the rows costs memory, and space in the
# processor's caches, even if all sentences are short.
_DEFAULT_MAX_TOKENS = 256


@dataclass(frozen=True)
class TokenLimits:
    """Longest source and target, and the defaults of `max_length` and `min_length` [tokens].

    All but `default_min_length` count the end-of-sentence token.
    """

    source: int
    target: int
    default_max_length: int
    default_min_length: int = 0


@dataclass(frozen=True)
class RequestLimits:
    """The limits of every request, and the search of a request that sets none."""

    max_request_texts: int
    max_queue_size: int
    tokens: TokenLimits
    max_beam_size: int
    search: SearchDefaults = field(default_factory=SearchDefaults)


def limits_of(settings: ModelSettings, manifest: Manifest) -> RequestLimits:
    """The limits of requests to a model, and its search defaults.

    Raises:
        SettingsError: a setting exceeds the limit of the model.
    """
    return RequestLimits(
        settings.max_request_texts,
        settings.max_queue_size,
        token_limits(settings, manifest),
        settings.beam_limit,
        _search(settings, manifest),
    )


def token_limits(settings: ModelSettings, manifest: Manifest) -> TokenLimits:
    """The limits that both `settings` and the model allow.

    Raises:
        SettingsError: a setting exceeds the limit of the model.
    """
    source = _limit("--max-source-tokens", settings.max_source_tokens, manifest.limits.source_tokens)
    target = _limit("--max-target-tokens", settings.max_target_tokens, manifest.limits.target_tokens)
    default = min(manifest.decoding_defaults.max_length, target)
    return TokenLimits(source, target, default, min(_search(settings, manifest).min_length or 0, default))


def _search(settings: ModelSettings, manifest: Manifest) -> SearchDefaults:
    return manifest.decoding_defaults.search if settings.decoding_defaults else SearchDefaults()


def _limit(flag: str, asked: int | None, possible: int) -> int:
    if asked is None:
        return min(possible, _DEFAULT_MAX_TOKENS)
    if asked > possible:
        raise SettingsError(f"{flag} is {asked}, and the model takes {possible} at most")
    return asked


class Named(Protocol):
    """What names a model and languages: a request, or a message of the protocol."""

    @property
    def model(self) -> str: ...
    @property
    def source_language(self) -> str: ...
    @property
    def target_language(self) -> str: ...


class Lists(Protocol):
    """The options that are lists: `Options`, or their message."""

    @property
    def suppressed_phrases(self) -> Sized: ...
    @property
    def terminology(self) -> Sized: ...
    @property
    def preserve(self) -> Sized: ...
    @property
    def glossaries(self) -> Sized: ...


def check_names(request: Named) -> None:
    """Refuse a request with a name of a model or language that is too long to be looked up.

    Raises:
        InvalidRequestError: a name is too long. The error has all these names.
    """
    if wrong := [
        *_long("model", request.model, LONGEST_MODEL_NAME),
        *_long("source_language", request.source_language, LONGEST_TAG),
        *_long("target_language", request.target_language, LONGEST_TAG),
    ]:
        raise InvalidRequestError(*wrong)


def check_sizes(request: TranslationRequest, limits: RequestLimits) -> None:
    """Refuse a request of which anything but a name is too long or too many. See `check_names`, which comes before.

    Raises:
        InvalidRequestError: a field is too large. The error has all fields that are too large, and no other fields.
    """
    options = request.options
    wrong = _texts(request, options, limits)
    # Nothing else can be too long or too many.
    if (
        options.target_prefix
        or options.suppressed_phrases
        or options.terminology
        or options.preserve
        or options.glossaries
    ):
        wrong += _options(options, limits)
    refuse(wrong)


def check_inputs(request: ScoringRequest, limits: RequestLimits) -> None:
    """Refuse a request for scores, as `check_sizes` does."""
    refuse(_inputs(request, limits))


def splitting(options: Options) -> bool | None:
    """Return whether texts are cut into sentences; None if each text decides.

    Each text decides if the options do not say, unless an option is for one sentence.
    """
    if options.split_sentences is not None:
        return options.split_sentences
    return False if options.target_prefix or options.return_alternatives else None


def check_tokens(field: str, ids: Sequence[Sequence[int]], limit: int, advice: str = "") -> list[FieldViolation]:
    """Return a violation for each text of `field` whose `ids` are more than `limit`.

    Args:
        field: name of the texts' field, with {} for the number of a text.
        ids: the tokens of each text.
        limit: maximum tokens of a text.
        advice: what the caller can do, at the end of each description.
    """
    return [
        FieldViolation(field.format(number), f"has {len(each)} tokens, at most {limit} are accepted{advice}")
        for number, each in enumerate(ids)
        if len(each) > limit
    ]


def refuse(wrong: Sequence[FieldViolation]) -> None:
    """Refuse a request with these violations, if there are any.

    Raises:
        InvalidRequestError: there is a violation.
    """
    if wrong:
        raise InvalidRequestError(*wrong)


def takes_too_long(field: str, budget: Budget) -> InvalidRequestError:
    """Return the error for a request whose texts, the field `field`, take longer to read than `budget` allows."""
    problem = f"takes more than {budget.seconds:g} seconds to read; send less text in a request"
    return InvalidRequestError(FieldViolation(field, problem))


def _texts(request: TranslationRequest, options: Options, limits: RequestLimits) -> list[FieldViolation]:
    texts = request.texts
    if wrong := too_many("texts", len(texts), limits.max_request_texts):
        return wrong
    characters = CHARACTERS_PER_TOKEN * limits.tokens.source
    if max(map(len, texts), default=0) <= characters:
        return []
    if splitting(options) is not False:
        characters *= limits.max_queue_size
    field = request.field
    return [_too_long(field.format(n), text, characters) for n, text in enumerate(texts) if len(text) > characters]


def _inputs(request: ScoringRequest, limits: RequestLimits) -> list[FieldViolation]:
    if wrong := too_many("inputs", len(request.inputs), limits.max_request_texts):
        return wrong
    source, target = CHARACTERS_PER_TOKEN * limits.tokens.source, CHARACTERS_PER_TOKEN * limits.tokens.target
    for number, (text, translation) in enumerate(request.inputs):
        wrong += _long(f"inputs[{number}].source", text, source)
        wrong += _long(f"inputs[{number}].target", translation, target)
    return wrong


def too_many_entries(options: Lists) -> list[FieldViolation]:
    """Return a violation for each option that has too many entries."""
    return [
        *too_many("options.suppressed_phrases", len(options.suppressed_phrases), MAX_SUPPRESSED_PHRASES),
        *too_many("options.terminology", len(options.terminology), MAX_TERMS),
        *too_many("options.preserve", len(options.preserve), MAX_PRESERVE_PATTERNS),
        *too_many("options.glossaries", len(options.glossaries), MAX_GLOSSARIES),
    ]


def _options(options: Options, limits: RequestLimits) -> list[FieldViolation]:
    phrases, terms, patterns = options.suppressed_phrases, options.terminology, options.preserve
    many = too_many_entries(options)
    wrong = [
        *_long("options.target_prefix", options.target_prefix or "", CHARACTERS_PER_TOKEN * limits.tokens.target),
        *many,
    ]
    refused = {each.field for each in many}
    if "options.preserve" not in refused:
        for number, pattern in enumerate(patterns):
            wrong += _long(f"options.preserve[{number}]", pattern, MAX_PATTERN_CHARACTERS)
    if "options.suppressed_phrases" not in refused:
        for number, phrase in enumerate(phrases):
            wrong += _long(f"options.suppressed_phrases[{number}]", phrase, MAX_PHRASE_CHARACTERS)
    if "options.terminology" not in refused:
        for number, term in enumerate(terms):
            wrong += _long(f"options.terminology[{number}].source", term.source, MAX_PHRASE_CHARACTERS)
            wrong += _long(f"options.terminology[{number}].target", term.target, MAX_PHRASE_CHARACTERS)
    if "options.glossaries" not in refused:
        for number, name in enumerate(options.glossaries):
            wrong += _long(f"options.glossaries[{number}]", name, MAX_GLOSSARY_NAME)
    return wrong


def option_characters(options: Options) -> int:
    """Return how long the texts in `options` are, together [characters]."""
    phrases = (*options.suppressed_phrases, *options.preserve, *options.glossaries)
    if not (phrases or options.terminology or options.target_prefix):
        return 0
    terms = sum([len(term.source) + len(term.target) for term in options.terminology])
    return len(options.target_prefix or "") + sum(map(len, phrases)) + terms


def too_many(field: str, count: int, limit: int) -> list[FieldViolation]:
    """Return a violation if `field` has a `count` of entries above `limit`."""
    return [FieldViolation(field, f"has {count} entries, at most {limit} are accepted")] if count > limit else []


def _long(field: str, text: str, limit: int) -> list[FieldViolation]:
    return [_too_long(field, text, limit)] if len(text) > limit else []


def _too_long(field: str, text: str, limit: int) -> FieldViolation:
    return FieldViolation(field, f"has {len(text)} characters, at most {limit} are accepted")
