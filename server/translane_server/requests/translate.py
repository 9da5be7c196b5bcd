"""Turns requests for translations into sentences to decode, and results into translations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from translane.v1 import translation_pb2 as pb
from translane_server.budget import UNLIMITED, Budget, OverBudgetError
from translane_server.errors import FieldViolation, InvalidRequestError
from translane_server.manifest import Manifest
from translane_server.quality_estimate import UNCALIBRATED, Calibration
from translane_server.requests.cutting import SPLIT_ADVICE, Cutting
from translane_server.requests.documents import FORMATS, CutText, check_format, merge_translations
from translane_server.requests.kept_terms import SentenceTerms, most_reports
from translane_server.requests.language_pairs import LanguagePairs
from translane_server.requests.limits import (
    RequestLimits,
    TranslationRequest,
    check_names,
    check_sizes,
    check_tokens,
    refuse,
    splits,
    takes_too_long,
)
from translane_server.requests.model_defaults import search_options, with_defaults
from translane_server.requests.option_checks import OptionLimits, check_options
from translane_server.requests.resolved_options import Source, TermSources, resolve
from translane_server.requests.responses import TranslationBuilder, empty_translation, rate_nothing
from translane_server.requests.spelling import Spelling
from translane_server.requests.tokenizing import tokenize
from translane_server.sentence import Sentence, SentenceResult
from translane_server.text.glossary import Glossary
from translane_server.text.language_tags import standard_tag
from translane_server.text.markup.document import Document, MarkupError
from translane_server.text.preserve_patterns import PreservePatternError, PreservePatterns
from translane_server.text.splitting import TooManySentencesError, spaces_words, target_gaps
from translane_server.text.stored_glossaries import StoredGlossaries
from translane_server.text.tokenizer import Tokenizer

# How many manners are remembered, and the maximum size of their options [bytes].
_MANNERS = 128
_MANNER_BYTES = 4096

_NO_GLOSSARIES = StoredGlossaries()


@dataclass(frozen=True)
class PreparedText:
    """A text as sentences to decode: at most one sentence, unless the text was cut.

    Attributes:
        sources: the sentences.
        cut: how the text was cut; None if the text is one sentence as it is.
        written: the text as it was written, if something of it may have been preserved.
    """

    sources: Sequence[Source]
    cut: CutText | None = None
    written: str | None = None

    def stream_gaps(self, target_language: str) -> list[str] | None:
        """Return what a stream sends before, between and after the sentences; None if it sends the text at its end."""
        if self.cut is None:
            return [""] * (len(self.sources) + 1)
        return None if self.cut.document else target_gaps(self.cut.gaps[0], target_language)


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
        if text.cut:
            decoding = self.builder.resolved.decoding
            ranked = not (decoding.sampling or decoding.alternatives)
            message = merge_translations(text.cut, translations, self.target_language, ranked=ranked)
        else:
            message = translations[0] if translations else empty_translation()
        if not translations:
            rate_nothing(message.hypotheses[0], self.builder.resolved.returned)
        if self.builder.resolved.terms:
            self._report_terms(message, text, translations)
        return message

    def _report_terms(
        self, message: pb.Translation, text: PreparedText, translations: Sequence[pb.Translation]
    ) -> None:
        terms = self.builder.resolved.terms
        assert terms is not None
        sentences = [
            (source.terms or SentenceTerms(), each.hypotheses[0].text)
            for source, each in zip(text.sources, translations, strict=True)
        ]
        if reports := terms.reports(sentences, most_reports(len(self.texts)), text.written):
            message.treatment.terms.extend(reports)


@dataclass(frozen=True)
class _Manner:
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


class TranslateReader:
    """Turns `Translate` and `TranslateStream` requests to one model into sentences.

    Args:
        manifest: the model's manifest.
        tokenizer: the model's tokenizer.
        limits: the limits of every request.
        stored: returns the glossaries of the server. They are other ones after a change.
    """

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
        self._options = OptionLimits(limits.tokens, limits.beam_size, manifest.alignment is not None)
        self._spelling = Spelling(tokenizer, manifest.special_ids.unk)
        self._stored = stored
        self._remembered_with = _NO_GLOSSARIES
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
            options = with_defaults(request.options, self._defaults)
            refuse([wrong, *wrong_languages, *check_options(options, self._options)])
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
        manner = manner_of(*languages, options, self._stored_for(request))
        if request.format:
            prepared, wrong = self._parsed(request, texts, manner, budget)
        else:
            prepared, wrong = self._prepared(request, texts, manner, budget)
        builder = manner.builder
        refuse([*wrong, *manner.wrong, *_check_stream(request)])
        assert builder is not None, "options without fault are resolved"
        sources = [source for text in prepared for source in text.sources]
        if builder.resolved.terms:
            sentences = []
            for source in sources:
                budget.check()
                sentences.append(builder.resolved.sentence(source))
        else:
            sentences = [builder.resolved.sentence(source) for source in sources]
        if builder.resolved.replace_unknowns and isinstance(request, pb.TranslateStreamRequest):
            for source in sources:  # here, because a stream builds its text on the event loop
                budget.check()
                builder.source_surfaces(source)
        return PreparedRequest(prepared, sentences, manner.target_language, builder)

    def _stored_for(self, request: TranslationRequest) -> StoredGlossaries:
        """Return the glossaries of the server, if the request names any. Manners with older ones are forgotten."""
        if not request.options.glossaries:
            return _NO_GLOSSARIES
        stored = self._stored()
        if stored is not self._remembered_with:
            self._remembered_with = stored
            self._remembered_manner.cache_clear()
        return stored

    def _manner(
        self, source_language: str, target_language: str, serialized_options: bytes, stored: StoredGlossaries
    ) -> _Manner:
        """Return the manner of requests with these languages and options.

        Equal options may be serialized differently. Such options have separate manners with equal content.
        """
        options = with_defaults(pb.DecodingOptions.FromString(serialized_options), self._defaults)
        pair, wrong = self._pairs.find(source_language, target_language)
        ids = self._manifest.special_ids
        source, language = standard_tag(source_language or pair.source), standard_tag(target_language or pair.target)
        glossaries, wrong_glossaries = _named(options.glossaries, stored, source, language)
        terms = TermSources(source, glossaries, self._spelling)
        resolved, wrong_options = resolve(options, self._options, pair.tokenizer, ids.unk, pair.forced_ids, terms)
        patterns, wrong_patterns = _patterns(options.preserve)
        cutting = Cutting(
            pair,
            source,
            ids.unk,
            splits=options.split_sentences
            if options.HasField("split_sentences")
            else None
            if splits(options)
            else False,
            preserves=options.preserve_untranslatable or not options.HasField("preserve_untranslatable"),
            patterns=patterns,
            tokens=self._limits.tokens,
        )
        builder = None
        if resolved:
            builder = TranslationBuilder(pair, ids, resolved, self._calibration, spaced=spaces_words(language))
        named_wrong = [] if wrong else wrong_glossaries
        return _Manner(cutting, builder, [*wrong, *wrong_options, *named_wrong, *wrong_patterns], language)

    def _prepared(
        self, request: TranslationRequest, texts: Sequence[str], manner: _Manner, budget: Budget
    ) -> tuple[list[PreparedText], list[FieldViolation]]:
        """Return the sentences of each text, and violations for texts that are too long."""
        cutting = manner.cutting
        plain = [cutting.is_plain(text) for text in texts]
        if all(plain):
            encoded = tokenize(cutting.pair.encode, texts, budget)
            if all(map(cutting.is_plain_sentence, encoded)):
                sources = [Source(*each) for each in zip(texts, encoded, strict=True)]
                wrong = check_tokens(_field(request), encoded, self._limits.tokens.source, SPLIT_ADVICE)
                return [PreparedText((source,) if source.ids else ()) for source in sources], wrong
        else:
            alone = [text for text, is_plain in zip(texts, plain, strict=True) if is_plain]
            encoded = tokenize(cutting.pair.encode, alone, budget)
        ids = iter(encoded)
        known = [next(ids) if is_plain else None for is_plain in plain]
        return self._cut(request, texts, known, manner, budget)

    def _cut(
        self,
        request: TranslationRequest,
        texts: Sequence[str],
        known: Sequence[Sequence[int] | None],
        manner: _Manner,
        budget: Budget,
        documents: Sequence[Document] = (),
    ) -> tuple[list[PreparedText], list[FieldViolation]]:
        """Return the sentences of each text. All sentences together fit the limit of waiting sentences.

        Args:
            request: the request.
            texts: its texts.
            known: the tokens of each text that may be a plain sentence.
            manner: the manner of the request.
            budget: how long this may take.
            documents: the texts as blocks, if they have markup.
        """
        cutting, field, most = manner.cutting, _field(request), self._limits.sentences_waiting
        prepared: list[PreparedText] = []
        wrong: list[FieldViolation] = []
        remaining = most
        for number, (text, ids) in enumerate(zip(texts, known, strict=True)):
            name = field.format(number)
            try:
                if ids is not None and cutting.is_plain_sentence(ids):
                    wrong += check_tokens(name, [ids], self._limits.tokens.source, SPLIT_ADVICE)
                    prepared.append(PreparedText((Source(text, ids),) if ids else ()))
                else:
                    document = documents[number] if documents else None
                    cut = cutting.cut(name, text, document, remaining, budget)
                    prepared.append(PreparedText(*cut, None if document else text))
            except TooManySentencesError:
                problem = f"has too many sentences, at most {most} are accepted in a request"
                return [], [*wrong, FieldViolation(name, problem)]
            except InvalidRequestError as error:  # reported together with all other violations
                wrong += error.violations
                continue
            remaining -= len(prepared[-1].sources)
        return prepared, wrong

    def _parsed(
        self, request: TranslationRequest, texts: Sequence[str], manner: _Manner, budget: Budget
    ) -> tuple[list[PreparedText], list[FieldViolation]]:
        """Return the sentences of texts with markup."""
        if wrong := check_format(request.format):
            return [], wrong
        if request.format not in FORMATS:
            return self._prepared(request, texts, manner, budget)
        documents = []
        for number, text in enumerate(texts):
            budget.check()
            try:
                documents.append(FORMATS[request.format](text))
            except MarkupError as error:
                wrong.append(FieldViolation(_field(request).format(number), str(error)))
        if wrong:
            return [], wrong
        return self._cut(request, texts, [None] * len(texts), manner, budget, documents)


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


def _check_stream(request: TranslationRequest) -> list[FieldViolation]:
    if isinstance(request, pb.TranslateRequest) or (hypotheses := request.options.num_hypotheses) <= 1:
        return []
    return [FieldViolation("options.num_hypotheses", f"is {hypotheses}, and a stream has one")]


def _texts(request: TranslationRequest) -> list[str]:
    return list(request.texts) if isinstance(request, pb.TranslateRequest) else [request.text]


def _field(request: TranslationRequest) -> str:
    """Return the name of the texts' field, with {} for the number of a text."""
    return "texts[{}]" if isinstance(request, pb.TranslateRequest) else "text"
