"""Requests for translations, checked and made of the engine's sentences; and their results made translations again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from translane.v1 import translation_pb2 as pb
from translane_server.bundle import Manifest
from translane_server.documents import merge_translations, split_texts
from translane_server.errors import FieldViolation, InvalidRequestError
from translane_server.language_pairs import LanguagePair, LanguagePairs
from translane_server.languages import standard_tag
from translane_server.option_checks import OptionLimits, check_options
from translane_server.option_resolution import ResolvedOptions, Source, check_sentences, resolve
from translane_server.request import Sentence, SentenceResult
from translane_server.responses import TranslationBuilder, empty_translation
from translane_server.splitting import SplitText
from translane_server.tokenizer import Tokenizer
from translane_server.validation import (
    RequestLimits,
    check_characters,
    check_count,
    check_tokens,
    refuse,
)

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
    resolved: ResolvedOptions
    sentences: Sequence[Sentence]
    target_language: str
    builder: TranslationBuilder

    @property
    def sources(self) -> list[Source]:
        """Of each of `sentences`."""
        return [source for text in self.texts for source in text.sources]

    def translations(self, results: Sequence[SentenceResult]) -> list[pb.Translation]:
        """A message for each text, of a result for each sentence."""
        remaining = iter(results)
        return [
            self._translation(text, [self.builder.translation(source, next(remaining)) for source in text.sources])
            for text in self.texts
        ]

    def _translation(self, text: PreparedText, translations: Sequence[pb.Translation]) -> pb.Translation:
        if text.split:
            message = merge_translations(text.split, translations, self.target_language)
        else:
            message = translations[0] if translations else empty_translation()
        if not translations and self.resolved.decoding.scores:
            message.hypotheses[0].score = 0.0  # the product of no probabilities
        return message


class Preparation:
    """Checks and prepares requests for one model.

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

    def check(self, request: pb.TranslateRequest | pb.TranslateStreamRequest) -> None:
        """Refuse what is not worth the work of counting tokens.

        Raises:
            InvalidRequestError: there are no texts, too many of them, or too long ones.
        """
        texts, tokens = _named_texts(request), self._limits.tokens.source
        wrong = check_count("texts", len(texts), self._limits.texts_per_request)
        if not wrong:
            most = tokens * (self._limits.sentences_waiting if request.options.split_sentences else 1)
            wrong = check_characters(texts, most)
        if wrong:
            _, wrong_languages = self._pairs.find(request.source_language, request.target_language)
            refuse([*wrong, *wrong_languages, *check_options(request.options, self._options)])

    def prepare(self, request: pb.TranslateRequest | pb.TranslateStreamRequest) -> PreparedRequest:
        """Make tokens of a request that passed `check`. Takes a while: not for the event loop.

        Raises:
            InvalidRequestError: naming everything that is wrong.
        """
        ids = self._manifest.special_ids
        pair, wrong = self._pairs.find(request.source_language, request.target_language)
        resolved, wrong_options = resolve(request.options, self._options, pair.tokenizer, ids.unk, pair.forced_ids)
        named = _named_texts(request)
        if request.options.split_sentences:
            texts, wrong_texts = self._split(named, pair, standard_tag(request.source_language or pair.source))
        else:
            texts, wrong_texts = self._encode(named, pair)
        refuse([*wrong_texts, *wrong, *wrong_options, *_check_stream(request)])
        assert resolved is not None, "options without fault are resolved"
        sentences = [
            (name, resolved.sentence(source))
            for (name, _), text in zip(named, texts, strict=True)
            for source in text.sources
        ]
        refuse(check_sentences(sentences))
        return PreparedRequest(
            texts,
            resolved,
            [sentence for _, sentence in sentences],
            standard_tag(request.target_language or pair.target),
            TranslationBuilder(pair.tokenizer, ids, resolved),
        )

    def _encode(
        self, named: Sequence[tuple[str, str]], pair: LanguagePair
    ) -> tuple[list[PreparedText], list[FieldViolation]]:
        """A sentence of each text that has tokens, and which are too long."""
        encoded = pair.tokenizer.encode([text for _, text in named])
        texts = [
            PreparedText((Source(text, ids),) if ids else ()) for (_, text), ids in zip(named, encoded, strict=True)
        ]
        names = [name for name, _ in named]
        return texts, check_tokens(list(zip(names, encoded, strict=True)), self._limits.tokens.source, _SPLIT_ADVICE)

    def _split(
        self, named: Sequence[tuple[str, str]], pair: LanguagePair, language: str
    ) -> tuple[list[PreparedText], list[FieldViolation]]:
        """The sentences of each text; all together they can wait for rows."""
        try:
            splits = split_texts(
                dict(named),
                language,
                pair.tokenizer.encode,
                max_tokens=self._limits.tokens.source,
                max_sentences=self._limits.sentences_waiting,
            )
        except InvalidRequestError as error:  # there may be more that is wrong
            return [], list(error.violations)
        return [PreparedText(_sources(split), split) for split in splits], []


def _sources(split: SplitText) -> list[Source]:
    return [Source(*each) for each in zip(split.sentences, split.source_ids, strict=True)]


def _check_stream(request: pb.TranslateRequest | pb.TranslateStreamRequest) -> list[FieldViolation]:
    hypotheses = request.options.num_hypotheses
    if isinstance(request, pb.TranslateRequest) or hypotheses <= 1:
        return []
    return [FieldViolation("options.num_hypotheses", f"is {hypotheses}, and a stream has one")]


def _named_texts(request: pb.TranslateRequest | pb.TranslateStreamRequest) -> list[tuple[str, str]]:
    """Texts after the names of their fields."""
    if isinstance(request, pb.TranslateStreamRequest):
        return [("text", request.text)]
    return [(f"texts[{index}]", text) for index, text in enumerate(request.texts)]
