"""Turns requests for translations into sentences to decode."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from translane.options import Format
from translane.requests import TranslationRequest
from translane.results import Translation, Treatment
from translane_server.bundle.manifest import Manifest
from translane_server.core.budget import UNLIMITED, Budget, OverBudgetError
from translane_server.core.errors import FieldViolation, InvalidRequestError
from translane_server.engine.sequence import Sentence, SentenceResult
from translane_server.text.characters import target_gaps
from translane_server.text.markup.document import Document, MarkupError
from translane_server.text.markup.html import parse_html
from translane_server.text.markup.markdown import parse_markdown
from translane_server.text.markup.xliff import parse_xliff
from translane_server.text.sentences import TooManySentencesError
from translane_server.text.stored_glossaries import StoredGlossaries
from translane_server.text.tokenizer import Tokenizer
from translane_server.translation.answers import TranslationBuilder, empty_translation, rated_nothing
from translane_server.translation.limits import (
    RequestLimits,
    check_names,
    check_sizes,
    check_tokens,
    refuse,
    takes_too_long,
)
from translane_server.translation.merging import CutText, merge_translations
from translane_server.translation.request_plan import RequestPlan, RequestPlans
from translane_server.translation.segmentation import SPLIT_ADVICE, Segment, tokenize
from translane_server.translation.terms import SentenceTerms, most_reports

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
        segmentation, field, most = plan.segmentation, request.field, self._limits.sentences_waiting
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
