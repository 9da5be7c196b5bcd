"""Reads requests: plans what to do with each text, and makes its sentences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from translane.options import Format, Options
from translane.requests import TranslationRequest
from translane.results import Translation, Treatment
from translane_server.bundle.manifest import Manifest
from translane_server.core.budget import UNLIMITED, Budget, OverBudgetError
from translane_server.core.errors import FieldViolation, InvalidRequestError
from translane_server.core.quality_estimate import UNCALIBRATED, Calibration
from translane_server.engine.sequence import Sentence, SentenceResult
from translane_server.text.characters import spaces_words, target_gaps
from translane_server.text.glossaries import StoredGlossaries
from translane_server.text.glossary import Glossary
from translane_server.text.language_tags import standard_tag
from translane_server.text.markup.document import Document, MarkupError
from translane_server.text.markup.html import parse_html
from translane_server.text.markup.markdown import parse_markdown
from translane_server.text.markup.xliff import parse_xliff
from translane_server.text.placeholders import PreservePatternError, PreservePatterns
from translane_server.text.sentences import TooManySentencesError
from translane_server.text.tokenizer import Tokenizer
from translane_server.translation.answers import TranslationBuilder, empty_translation, rated_nothing
from translane_server.translation.languages import LanguagePairs
from translane_server.translation.limits import (
    RequestLimits,
    check_names,
    check_sizes,
    check_tokens,
    option_characters,
    refuse,
    splitting,
    takes_too_long,
)
from translane_server.translation.options import (
    OptionLimits,
    TermSources,
    check_options,
    resolve,
    search_options,
    with_defaults,
)
from translane_server.translation.segmentation import (
    SPLIT_ADVICE,
    CutText,
    Segment,
    Segmentation,
    merge_translations,
    tokenize,
)
from translane_server.translation.terms import SentenceTerms, Spelling, most_reports

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
            limits.tokens, limits.max_beam_size, manifest.alignment is not None, manifest.shortlist is not None
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


_TEXT: str = Format.TEXT

# What reads each format. Plain text needs no reader.
_PARSERS: Mapping[str, Callable[[str], Document]] = {
    Format.HTML: parse_html,
    Format.MARKDOWN: parse_markdown,
    Format.XLIFF: parse_xliff,
}


@dataclass(frozen=True)
class PreparedText:
    """A text as sentences to decode: at most one sentence, unless the text was cut.

    Attributes:
        sources: the sentences.
        cut: how the text was cut; None if the text is one sentence as it is.
        written: the text as it was written, if something of it may have been preserved.
    """

    sources: Sequence[Segment]
    cut: CutText | None = None
    written: str | None = None

    def stream_gaps(self, target_language: str) -> list[str] | None:
        """Return what a stream sends before, between and after the sentences; None if it sends the text at its end."""
        if self.cut is None:
            return [""] * (len(self.sources) + 1)
        return None if self.cut.document else target_gaps(self.cut.gaps[0], target_language)


@dataclass(frozen=True)
class PreparedRequest:
    """A request as sentences to decode, and the builder of its translations."""

    texts: Sequence[PreparedText]
    sentences: Sequence[Sentence]
    target_language: str
    builder: TranslationBuilder

    def translations(self, results: Sequence[SentenceResult], budget: Budget = UNLIMITED) -> list[Translation]:
        """Return the translation of each text.

        Args:
            results: a result for each sentence.
            budget: is checked between the texts.

        Raises:
            WorkEndedError: the budget has ended.
        """
        remaining = iter(results)
        whole = []
        for text in self.texts:
            budget.check()
            translations = [self.builder.translation(source, next(remaining)) for source in text.sources]
            whole.append(self.translation(text, translations))
        return whole

    def translation(self, text: PreparedText, translations: Sequence[Translation]) -> Translation:
        """Return the translation of a text. `translations` are those of its sentences."""
        resolved = self.builder.resolved
        if text.cut:
            ranked = not (resolved.decoding.sampling or resolved.decoding.alternatives)
            whole = merge_translations(text.cut, translations, self.target_language, ranked=ranked)
            if not translations:
                whole = replace(whole, hypotheses=(rated_nothing(whole.hypotheses[0], resolved.returned),))
        else:
            whole = translations[0] if translations else empty_translation(resolved.returned)
        return self._with_reports(whole, text, translations) if resolved.terms else whole

    def _with_reports(self, whole: Translation, text: PreparedText, translations: Sequence[Translation]) -> Translation:
        terms = self.builder.resolved.terms
        assert terms is not None
        sentences = [
            (source.terms or SentenceTerms(), each.hypotheses[0].text)
            for source, each in zip(text.sources, translations, strict=True)
        ]
        reports = terms.reports(sentences, most_reports(len(self.texts)), text.written)
        if not reports:
            return whole
        return replace(whole, treatment=replace(whole.treatment or Treatment(), terms=tuple(reports)))


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
        self._limits = limits
        self._plans = RequestPlans(manifest, tokenizer, limits, stored)

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
        texts = request.texts
        if not texts:
            refuse([FieldViolation("texts", "is empty; at least one is needed"), *self._plans.check(request)])
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
            raise takes_too_long("text" if request.streamed else "texts", budget) from None

    def _read(self, request: TranslationRequest, budget: Budget) -> PreparedRequest:
        texts = request.texts
        plan = self._plans.of(request)
        if request.format != _TEXT:
            prepared, wrong = self._parsed(request, texts, plan, budget)
        else:
            prepared, wrong = self._prepared(request, texts, plan, budget)
        builder = plan.builder
        refuse([*wrong, *plan.wrong, *_check_stream(request)])
        assert builder is not None, "options without fault are resolved"
        sources = [source for text in prepared for source in text.sources]
        if builder.resolved.terms:
            sentences = []
            for source in sources:
                budget.check()
                sentences.append(builder.resolved.sentence(source))
        else:
            sentences = [builder.resolved.sentence(source) for source in sources]
        if builder.resolved.replace_unknowns and request.streamed:
            for source in sources:  # here, because a stream builds its text on the event loop
                budget.check()
                builder.source_surfaces(source)
        return PreparedRequest(prepared, sentences, plan.target_language, builder)

    def _prepared(
        self, request: TranslationRequest, texts: Sequence[str], plan: RequestPlan, budget: Budget
    ) -> tuple[list[PreparedText], list[FieldViolation]]:
        """Return the sentences of each text, and violations for texts that are too long."""
        segmentation = plan.segmentation
        plain = [segmentation.is_plain(text) for text in texts]
        if all(plain):
            encoded = tokenize(segmentation.pair.encode, texts, budget)
            if all(map(segmentation.is_plain_sentence, encoded)):
                sources = [Segment(*each) for each in zip(texts, encoded, strict=True)]
                wrong = check_tokens(request.field, encoded, self._limits.tokens.source, SPLIT_ADVICE)
                return [PreparedText((source,) if source.ids else ()) for source in sources], wrong
        else:
            alone = [text for text, is_plain in zip(texts, plain, strict=True) if is_plain]
            encoded = tokenize(segmentation.pair.encode, alone, budget)
        ids = iter(encoded)
        known = [next(ids) if is_plain else None for is_plain in plain]
        return self._cut(request, texts, known, plan, budget)

    def _cut(
        self,
        request: TranslationRequest,
        texts: Sequence[str],
        known: Sequence[Sequence[int] | None],
        plan: RequestPlan,
        budget: Budget,
        documents: Sequence[Document] = (),
    ) -> tuple[list[PreparedText], list[FieldViolation]]:
        """Return the sentences of each text. All sentences together fit the limit of waiting sentences.

        Args:
            request: the request.
            texts: its texts.
            known: the tokens of each text that may be a plain sentence.
            plan: how texts are translated.
            budget: how long this may take.
            documents: the texts as blocks, if they have markup.
        """
        segmentation, field, most = plan.segmentation, request.field, self._limits.max_queue_size
        prepared: list[PreparedText] = []
        wrong: list[FieldViolation] = []
        remaining = most
        for number, (text, ids) in enumerate(zip(texts, known, strict=True)):
            name = field.format(number)
            try:
                if ids is not None and segmentation.is_plain_sentence(ids):
                    wrong += check_tokens(name, [ids], self._limits.tokens.source, SPLIT_ADVICE)
                    prepared.append(PreparedText((Segment(text, ids),) if ids else ()))
                else:
                    document = documents[number] if documents else None
                    cut = segmentation.cut(name, text, document, remaining, budget)
                    prepared.append(PreparedText(*cut, text))
            except TooManySentencesError:
                problem = f"has too many sentences, at most {most} are accepted in a request"
                return [], [*wrong, FieldViolation(name, problem)]
            except InvalidRequestError as error:  # reported together with all other violations
                wrong += error.violations
                continue
            remaining -= len(prepared[-1].sources)
        return prepared, wrong

    def _parsed(
        self, request: TranslationRequest, texts: Sequence[str], plan: RequestPlan, budget: Budget
    ) -> tuple[list[PreparedText], list[FieldViolation]]:
        """Return the sentences of texts with markup."""
        parse = _PARSERS.get(request.format)
        if parse is None:
            return [], [FieldViolation("format", f"{request.format} is not supported by this server")]
        documents = []
        wrong = []
        for number, text in enumerate(texts):
            budget.check()
            try:
                documents.append(parse(text))
            except MarkupError as error:
                wrong.append(FieldViolation(request.field.format(number), str(error)))
        if wrong:
            return [], wrong
        return self._cut(request, texts, [None] * len(texts), plan, budget, documents)


def _check_stream(request: TranslationRequest) -> list[FieldViolation]:
    hypotheses = request.options.num_hypotheses or 1
    if not request.streamed or hypotheses <= 1:
        return []
    return [FieldViolation("options.num_hypotheses", f"is {hypotheses}, and a stream has one")]
