"""Turns requests for translations into sentences to decode, and results into translations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from translane.v1 import translation_pb2 as pb
from translane_server.budget import UNLIMITED, Budget, OverBudgetError
from translane_server.errors import FieldViolation, InvalidRequestError
from translane_server.manifest import Manifest
from translane_server.quality_estimate import UNCALIBRATED, Calibration
from translane_server.requests.documents import merge_translations, split_texts
from translane_server.requests.language_pairs import LanguagePair, LanguagePairs
from translane_server.requests.limits import (
    CHARACTERS_PER_TOKEN,
    RequestLimits,
    TranslationRequest,
    check_names,
    check_sizes,
    check_tokens,
    refuse,
    takes_too_long,
)
from translane_server.requests.option_checks import OptionLimits, check_options
from translane_server.requests.resolved_options import Source, check_sentences, resolve
from translane_server.requests.responses import TranslationBuilder, empty_translation, rate_nothing
from translane_server.requests.tokenizing import tokenize
from translane_server.sentence import Sentence, SentenceResult
from translane_server.text.language_tags import standard_tag
from translane_server.text.splitting import SplitLimits, SplitText
from translane_server.text.tokenizer import Tokenizer

# How many manners are remembered, and the maximum size of their options [bytes].
_MANNERS = 128
_MANNER_BYTES = 4096

_SPLIT_ADVICE = "; split_sentences cuts it into sentences"


@dataclass(frozen=True)
class PreparedText:
    """A text as sentences to decode: at most one sentence, unless the text was split."""

    sources: Sequence[Source]
    split: SplitText | None = None


@dataclass(frozen=True)
class PreparedRequest:
    """A request as sentences to decode, and the builder of its messages."""

    texts: Sequence[PreparedText]
    sentences: Sequence[Sentence]
    target_language: str
    builder: TranslationBuilder

    def translations(self, results: Sequence[SentenceResult], budget: Budget = UNLIMITED) -> list[pb.Translation]:
        """Return a message for each text.

        Args:
            results: a result for each sentence.
            budget: is checked between the texts.

        Raises:
            WorkEndedError: the budget has ended.
        """
        remaining = iter(results)
        messages = []
        for text in self.texts:
            budget.check()
            translations = [self.builder.translation(source, next(remaining)) for source in text.sources]
            messages.append(self.translation(text, translations))
        return messages

    def translation(self, text: PreparedText, translations: Sequence[pb.Translation]) -> pb.Translation:
        """Return the message of a text. `translations` are the messages of its sentences."""
        if text.split:
            message = merge_translations(text.split, translations, self.target_language)
        else:
            message = translations[0] if translations else empty_translation()
        if not translations:
            rate_nothing(message.hypotheses[0], self.builder.resolved.returned)
        return message


@dataclass(frozen=True)
class _Manner:
    """How texts are translated. Requests with the same languages and options have the same manner.

    Attributes:
        pair: the language pair, which tokenizes texts.
        split: whether texts are cut into sentences.
        builder: builds messages as the options say; None if something is wrong with the options.
        wrong: what is wrong with the languages and the options.
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
    """Turns `Translate` and `TranslateStream` requests to one model into sentences.

    Args:
        manifest: the model's manifest.
        tokenizer: the model's tokenizer.
        limits: the limits of every request.
    """

    def __init__(self, manifest: Manifest, tokenizer: Tokenizer, limits: RequestLimits) -> None:
        self._manifest = manifest
        self._pairs = LanguagePairs(manifest.languages, tokenizer)
        self._limits = limits
        self._options = OptionLimits(limits.tokens, limits.beam_size, manifest.alignment is not None)
        estimation = manifest.quality_estimation
        self._calibration = Calibration(estimation.weight, estimation.bias) if estimation else UNCALIBRATED
        self._remembered_manner = lru_cache(_MANNERS)(self._manner)

    def check(self, request: TranslationRequest) -> int:
        """Refuse a request that is too large to be tokenized. This is cheap, and done on the event loop.

        Returns:
            How many sentences the request has, as far as can be told without tokens. A text without tokens counts, too:
            it takes as long to read as another one.

        Raises:
            InvalidRequestError: there are no texts, or a field is too large.
        """
        check_names(request)
        check_sizes(request, self._limits)
        texts = _texts(request)
        if not texts:
            _, wrong_languages = self._pairs.find(request.source_language, request.target_language)
            wrong = FieldViolation("texts", "is empty; at least one is needed")
            refuse([wrong, *wrong_languages, *check_options(request.options, self._options)])
        return len(texts)

    def read(self, request: TranslationRequest, budget: Budget = UNLIMITED) -> PreparedRequest:
        """Tokenize a request that passed `check`. A long request takes too long for the event loop.

        Args:
            request: the request.
            budget: how long this may take; it is checked between the texts.

        Raises:
            InvalidRequestError: the request is wrong, or takes too long. If it is wrong, the error names everything
                that is wrong.
            WorkEndedError: the budget has ended.
        """
        try:
            return self._read(request, budget)
        except OverBudgetError:
            raise takes_too_long("texts" if isinstance(request, pb.TranslateRequest) else "text", budget) from None

    def _read(self, request: TranslationRequest, budget: Budget) -> PreparedRequest:
        texts = _texts(request)
        languages, options = (request.source_language, request.target_language), request.options.SerializeToString()
        manner_of = self._remembered_manner if len(options) <= _MANNER_BYTES else self._manner
        manner = manner_of(*languages, options)
        prepared, wrong = (self._split if manner.split else self._encode)(request, texts, manner, budget)
        builder = manner.builder
        refuse([*wrong, *manner.wrong, *_check_stream(request)])
        assert builder is not None, "options without fault are resolved"
        sources = [source for text in prepared for source in text.sources]
        if request.options.terminology:
            sentences = []
            for source in sources:
                budget.check()
                sentences.append(builder.resolved.sentence(source))
            field = _field(request)
            names = [field.format(number) for number, text in enumerate(prepared) for _ in text.sources]
            refuse(check_sentences(zip(names, sentences, strict=True)))
        else:
            sentences = [builder.resolved.sentence(source) for source in sources]
        if builder.resolved.replace_unknowns and isinstance(request, pb.TranslateStreamRequest):
            for source in sources:  # here, because a stream builds its text on the event loop
                budget.check()
                builder.source_surfaces(source)
        return PreparedRequest(prepared, sentences, manner.target_language, builder)

    def _manner(self, source_language: str, target_language: str, serialized_options: bytes) -> _Manner:
        """Return the manner of requests with these languages and options.

        Equal options may be serialized differently. Such options have separate manners with equal content.
        """
        options = pb.DecodingOptions.FromString(serialized_options)
        pair, wrong = self._pairs.find(source_language, target_language)
        ids = self._manifest.special_ids
        resolved, wrong_options = resolve(options, self._options, pair.tokenizer, ids.unk, pair.forced_ids)
        return _Manner(
            pair,
            options.split_sentences,
            TranslationBuilder(pair, ids, resolved, self._calibration) if resolved else None,
            [*wrong, *wrong_options],
            standard_tag(source_language or pair.source),
            standard_tag(target_language or pair.target),
        )

    def _encode(
        self, request: TranslationRequest, texts: Sequence[str], manner: _Manner, budget: Budget
    ) -> tuple[list[PreparedText], list[FieldViolation]]:
        """Return one sentence of each text that has tokens, and violations for texts that are too long."""
        most = self._limits.tokens.source
        encoded = tokenize(manner.pair.encode, texts, budget)
        prepared = [PreparedText((Source(*each),) if each[1] else ()) for each in zip(texts, encoded, strict=True)]
        return prepared, check_tokens(_field(request), encoded, most, _SPLIT_ADVICE)

    def _split(
        self, request: TranslationRequest, texts: Sequence[str], manner: _Manner, budget: Budget
    ) -> tuple[list[PreparedText], list[FieldViolation]]:
        """Return the sentences of each text. All sentences together fit the limit of waiting sentences."""
        tokens = self._limits.tokens.source
        limits = SplitLimits(tokens, CHARACTERS_PER_TOKEN * tokens, self._limits.sentences_waiting)

        def encode(parts: Sequence[str]) -> list[list[int]]:
            return tokenize(manner.pair.encode, parts, budget)

        named = {_field(request).format(number): text for number, text in enumerate(texts)}
        try:
            splits = split_texts(named, manner.source_language, encode, limits, budget)
        except InvalidRequestError as error:  # reported together with all other violations
            return [], list(error.violations)
        return [PreparedText(_sources(split), split) for split in splits], []


def _sources(split: SplitText) -> list[Source]:
    return [Source(*each) for each in zip(split.sentences, split.source_ids, strict=True)]


def _check_stream(request: TranslationRequest) -> list[FieldViolation]:
    if isinstance(request, pb.TranslateRequest) or (hypotheses := request.options.num_hypotheses) <= 1:
        return []
    return [FieldViolation("options.num_hypotheses", f"is {hypotheses}, and a stream has one")]


def _texts(request: TranslationRequest) -> list[str]:
    return list(request.texts) if isinstance(request, pb.TranslateRequest) else [request.text]


def _field(request: TranslationRequest) -> str:
    """Return the name of the texts' field, with {} for the number of a text."""
    return "texts[{}]" if isinstance(request, pb.TranslateRequest) else "text"
