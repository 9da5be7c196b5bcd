"""Requests for translations, checked and made of the engine's sentences; and their results made translations again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from translane.v1 import translation_pb2 as pb
from translane_server.errors import FieldViolation, InvalidRequestError
from translane_server.manifest import Manifest
from translane_server.requests.documents import merge_translations, split_texts
from translane_server.requests.language_pairs import LanguagePair, LanguagePairs
from translane_server.requests.limits import (
    RequestLimits,
    check_characters,
    check_count,
    check_tokens,
    refuse,
)
from translane_server.requests.option_checks import OptionLimits, check_options
from translane_server.requests.options import Source, check_sentences, resolve
from translane_server.requests.responses import TranslationBuilder, empty_translation
from translane_server.sentence import Sentence, SentenceResult
from translane_server.text.language_tags import standard_tag
from translane_server.text.splitting import SplitText
from translane_server.text.tokenizer import Tokenizer

# How many manners are remembered, and up to which length of what they are found by [characters and bytes].
_MANNERS = 128
_MANNER_LENGTH = 4096

_Request = pb.TranslateRequest | pb.TranslateStreamRequest

_SPLIT_ADVICE = "; split_sentences cuts it into sentences"


@dataclass(frozen=True)
class PreparedText:
    """A text as the sentences to decode: at most one, unless it was cut into sentences."""

    sources: Sequence[Source]
    split: SplitText | None = None


@dataclass(frozen=True)
class PreparedRequest:
    """What the engine is asked for, and what makes messages of its results."""

    texts: Sequence[PreparedText]
    sentences: Sequence[Sentence]
    target_language: str
    builder: TranslationBuilder

    def translations(self, results: Sequence[SentenceResult]) -> list[pb.Translation]:
        """A message for each text, of a result for each sentence."""
        remaining = iter(results)
        return [
            self.translation(text, [self.builder.translation(source, next(remaining)) for source in text.sources])
            for text in self.texts
        ]

    def translation(self, text: PreparedText, translations: Sequence[pb.Translation]) -> pb.Translation:
        """The message of a text, of those of its sentences."""
        if text.split:
            message = merge_translations(text.split, translations, self.target_language)
        else:
            message = translations[0] if translations else empty_translation()
        if not translations and self.builder.resolved.decoding.scores:
            message.hypotheses[0].score = 0.0  # the product of no probabilities
        return message


@dataclass(frozen=True)
class _Manner:
    """How texts are translated: all that requests have in common whose languages and options are the same.

    Attributes:
        pair: its tokenizer makes tokens of texts.
        split: whether they are cut into sentences.
        builder: makes messages as the options say; None where something is wrong with them.
        wrong: with the languages and the options.
        source_language: a standard tag.
        target_language: a standard tag.
    """

    pair: LanguagePair
    split: bool
    builder: TranslationBuilder | None
    wrong: Sequence[FieldViolation]
    source_language: str
    target_language: str


class TranslateReader:
    """Makes sentences of the requests for translations by one model.

    Args:
        manifest: of the model.
        tokenizer: the model's.
        limits: what requests are held to.
    """

    def __init__(self, manifest: Manifest, tokenizer: Tokenizer, limits: RequestLimits) -> None:
        self._manifest = manifest
        self._pairs = LanguagePairs(manifest.languages, tokenizer)
        self._limits = limits
        self._options = OptionLimits(limits.tokens, limits.beam_size, manifest.alignment is not None)
        self._remembered_manner = lru_cache(_MANNERS)(self._manner)

    def read(self, request: _Request, check_room: Callable[[int], None]) -> PreparedRequest:
        """Check a request and make tokens of it. May take a while: not for the event loop, unless it is short.

        Args:
            request: of `Translate` or `TranslateStream`.
            check_room: raises where so many sentences are more than can wait; called before tokens are made.

        Raises:
            InvalidRequestError: naming everything that is wrong.
        """
        texts = _texts(request)
        self._check_size(request, texts)
        check_room(sum(map(bool, texts)))
        languages, options = (request.source_language, request.target_language), request.options.SerializeToString()
        short = len(languages[0]) + len(languages[1]) + len(options) <= _MANNER_LENGTH
        manner = (self._remembered_manner if short else self._manner)(*languages, options)
        prepared, wrong = (self._split if manner.split else self._encode)(request, texts, manner)
        builder = manner.builder
        refuse([*wrong, *manner.wrong, *_check_stream(request)])
        assert builder is not None, "options without fault are resolved"
        sentences = [builder.resolved.sentence(source) for text in prepared for source in text.sources]
        if request.options.terminology:
            field = _field(request)
            names = [field.format(number) for number, text in enumerate(prepared) for _ in text.sources]
            refuse(check_sentences(zip(names, sentences, strict=True)))
        return PreparedRequest(prepared, sentences, manner.target_language, builder)

    def _check_size(self, request: _Request, texts: Sequence[str]) -> None:
        """Refuse what is not worth the work of counting tokens."""
        limits = self._limits
        tokens = limits.tokens.source * (limits.sentences_waiting if request.options.split_sentences else 1)
        wrong = check_count("texts", len(texts), limits.texts_per_request)
        wrong = wrong or check_characters(_field(request), texts, tokens)
        if wrong:
            _, wrong_languages = self._pairs.find(request.source_language, request.target_language)
            refuse([*wrong, *wrong_languages, *check_options(request.options, self._options)])

    def _manner(self, source_language: str, target_language: str, serialized_options: bytes) -> _Manner:
        """The manner of requests that have these; options that are equal may be serialized differently."""
        options = pb.DecodingOptions.FromString(serialized_options)
        pair, wrong = self._pairs.find(source_language, target_language)
        ids = self._manifest.special_ids
        resolved, wrong_options = resolve(options, self._options, pair.tokenizer, ids.unk, pair.forced_ids)
        return _Manner(
            pair,
            options.split_sentences,
            TranslationBuilder(pair, ids, resolved) if resolved else None,
            [*wrong, *wrong_options],
            standard_tag(source_language or pair.source),
            standard_tag(target_language or pair.target),
        )

    def _encode(
        self, request: _Request, texts: Sequence[str], manner: _Manner
    ) -> tuple[list[PreparedText], list[FieldViolation]]:
        """A sentence of each text that has tokens, and which are too long."""
        most = self._limits.tokens.source
        encoded = manner.pair.encode(texts)
        prepared = [PreparedText((Source(*each),) if each[1] else ()) for each in zip(texts, encoded, strict=True)]
        return prepared, check_tokens(_field(request), encoded, most, _SPLIT_ADVICE)

    def _split(
        self, request: _Request, texts: Sequence[str], manner: _Manner
    ) -> tuple[list[PreparedText], list[FieldViolation]]:
        """The sentences of each text; all together they can wait for rows."""
        try:
            splits = split_texts(
                {_field(request).format(number): text for number, text in enumerate(texts)},
                manner.source_language,
                manner.pair.encode,
                max_tokens=self._limits.tokens.source,
                max_sentences=self._limits.sentences_waiting,
            )
        except InvalidRequestError as error:  # there may be more that is wrong
            return [], list(error.violations)
        return [PreparedText(_sources(split), split) for split in splits], []


def _sources(split: SplitText) -> list[Source]:
    return [Source(*each) for each in zip(split.sentences, split.source_ids, strict=True)]


def _check_stream(request: _Request) -> list[FieldViolation]:
    if isinstance(request, pb.TranslateRequest) or (hypotheses := request.options.num_hypotheses) <= 1:
        return []
    return [FieldViolation("options.num_hypotheses", f"is {hypotheses}, and a stream has one")]


def _texts(request: _Request) -> list[str]:
    return list(request.texts) if isinstance(request, pb.TranslateRequest) else [request.text]


def _field(request: _Request) -> str:
    """The field that has the texts, with {} for the number of each."""
    return "texts[{}]" if isinstance(request, pb.TranslateRequest) else "text"
