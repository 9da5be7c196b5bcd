"""Limits of requests. Everything that a caller can make long is measured here, before anything else looks at it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from translane.options import Options, Term
from translane.requests import ScoringRequest, TranslationRequest
from translane_server.bundle.manifest import LONGEST_MODEL_NAME, Manifest, SearchDefaults
from translane_server.core.budget import Budget
from translane_server.core.errors import FieldViolation, InvalidRequestError, SettingsError
from translane_server.settings.server_settings import ServerSettings
from translane_server.text.language_tags import LONGEST_TAG

# The options that are lists: the most entries, and the longest text of an entry [characters]. Each entry costs time in
# every step of its sentences, or in every request.
MOST_PRESERVED = 32
_LISTS = {
    "preserve": (MOST_PRESERVED, 512),
    "suppressed_phrases": (64, 128),
    "terminology": (1024, 128),
    "glossaries": (8, 100),
}

# A text with more characters than this for each allowed token is refused before it is tokenized. Tokenizing megabytes
# takes a second, and no real text has such long tokens.
CHARACTERS_PER_TOKEN = 64

# Default limit of source and target lengths [tokens]. A larger capacity of the rows costs memory, and space in the
# processor's caches, even if all sentences are short.
_DEFAULT_MAX_TOKENS = 256


@dataclass(frozen=True)
class TokenLimits:
    """Longest source and target, and the defaults of `max_length` and `min_length` [tokens].

    All but `default_min_length` count the end-of-sentence token. With a `default_factor`, a request that sets no
    `max_length` gets at most so many tokens for each token of a source.
    """

    source: int
    target: int
    default_max_length: int
    default_min_length: int = 0
    default_factor: float | None = None


@dataclass(frozen=True)
class RequestLimits:
    """The limits of every request, and the search of a request that sets none."""

    max_request_texts: int
    max_queue_size: int
    tokens: TokenLimits
    max_beam_size: int
    search: SearchDefaults = field(default_factory=SearchDefaults)


def limits_of(settings: ServerSettings, manifest: Manifest) -> RequestLimits:
    """The limits of requests to a model, and its search defaults.

    Raises:
        SettingsError: a setting exceeds the limit of the model.
    """
    search = manifest.decoding_defaults.search if settings.decoding_defaults else SearchDefaults()
    source = _limit("--max-source-tokens", settings.max_source_tokens, manifest.limits.source_tokens)
    target = _limit("--max-target-tokens", settings.max_target_tokens, manifest.limits.target_tokens)
    default = min(manifest.decoding_defaults.max_length, target)
    least = min(search.min_length or 0, default)
    tokens = TokenLimits(source, target, default, least, manifest.decoding_defaults.length_factor)
    return RequestLimits(settings.max_request_texts, settings.max_queue_size, tokens, settings.beam_limit, search)


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


def check_names(request: Named) -> None:
    """Refuse a request with a name of a model or language that is too long to be looked up.

    Raises:
        InvalidRequestError: a name is too long. The error has all these names.
    """
    model, source, target = request.model, request.source_language, request.target_language
    if len(model) > LONGEST_MODEL_NAME or len(source) > LONGEST_TAG or len(target) > LONGEST_TAG:
        raise InvalidRequestError(
            *_long("model", model, LONGEST_MODEL_NAME),
            *_long("source_language", source, LONGEST_TAG),
            *_long("target_language", target, LONGEST_TAG),
        )


def check_sizes(request: TranslationRequest, limits: RequestLimits) -> None:
    """Refuse a request of which anything but a name is too long or too many. See `check_names`, which comes before.

    Raises:
        InvalidRequestError: a field is too large. The error has all fields that are too large, and no other fields.
    """
    options, texts = request.options, request.texts
    wrong: list[FieldViolation] = []
    most = CHARACTERS_PER_TOKEN * limits.tokens.source
    if len(texts) > limits.max_request_texts:
        wrong += too_many("texts", len(texts), limits.max_request_texts)
    elif max(map(len, texts), default=0) > most:
        if splitting(options) is not False:
            most *= limits.max_queue_size
        wrong += [each for number, text in enumerate(texts) for each in _long(request.field.format(number), text, most)]
    # Nothing else can be too long or too many.
    if (
        options.target_prefix
        or options.suppressed_phrases
        or options.terminology
        or options.preserve
        or options.glossaries
    ):
        wrong += _options(options, limits)
    if wrong:
        raise InvalidRequestError(*wrong)


def check_inputs(request: ScoringRequest, limits: RequestLimits) -> None:
    """Refuse a request for scores, as `check_sizes` does."""
    refuse(too_many("inputs", len(request.inputs), limits.max_request_texts))
    source, target = CHARACTERS_PER_TOKEN * limits.tokens.source, CHARACTERS_PER_TOKEN * limits.tokens.target
    wrong: list[FieldViolation] = []
    for number, (text, translation) in enumerate(request.inputs):
        wrong += _long(f"inputs[{number}].source", text, source)
        wrong += _long(f"inputs[{number}].target", translation, target)
    refuse(wrong)


def splitting(options: Options) -> bool | None:
    """Return whether texts are cut into sentences; None if each text decides.

    Each text decides if the options do not say, unless an option is for one sentence.
    """
    if options.split_sentences is not None:
        return options.split_sentences
    return False if options.target_prefix or options.return_alternatives else None


def check_tokens(field: str, ids: Sequence[Sequence[int]], limit: int, advice: str = "") -> list[FieldViolation]:
    """Return a violation for each text whose `ids` are more than `limit`, and what its caller can do.

    The `field` has {} for the number of a text.
    """
    return [
        FieldViolation(field.format(number), f"has {len(each)} tokens, at most {limit} are accepted{advice}")
        for number, each in enumerate(ids)
        if len(each) > limit
    ]


def refuse(wrong: Sequence[FieldViolation]) -> None:
    """Refuse a request with these violations, if there are any. InvalidRequestError: there is a violation."""
    if wrong:
        raise InvalidRequestError(*wrong)


def takes_too_long(field: str, budget: Budget) -> InvalidRequestError:
    """Return the error for a request whose texts, the field `field`, take longer to read than `budget` allows."""
    problem = f"takes more than {budget.seconds:g} seconds to read; send less text in a request"
    return InvalidRequestError(FieldViolation(field, problem))


def too_many_entries(options: object) -> list[FieldViolation]:
    """Return a violation for each option that has too many entries. `options` are `Options`, or their message."""
    return [
        violation
        for name, (most, _) in _LISTS.items()
        for violation in too_many(f"options.{name}", len(getattr(options, name)), most)
    ]


def _options(options: Options, limits: RequestLimits) -> list[FieldViolation]:
    wrong = _long("options.target_prefix", options.target_prefix or "", CHARACTERS_PER_TOKEN * limits.tokens.target)
    wrong += too_many_entries(options)
    for name, (most, longest) in _LISTS.items():
        entries = getattr(options, name)
        for number, entry in enumerate(entries if len(entries) <= most else ()):
            field = f"options.{name}[{number}]"
            if isinstance(entry, Term):
                wrong += _long(f"{field}.source", entry.source, longest)
                wrong += _long(f"{field}.target", entry.target, longest)
            else:
                wrong += _long(field, entry, longest)
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
    if len(text) <= limit:
        return []
    return [FieldViolation(field, f"has {len(text)} characters, at most {limit} are accepted")]
