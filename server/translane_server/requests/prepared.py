"""Requests for translations as sentences to decode, and what becomes of their results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from translane.v1 import translation_pb2 as pb
from translane_server.budget import UNLIMITED, Budget
from translane_server.requests.kept_terms import SentenceTerms, most_reports
from translane_server.requests.merging import CutText, merge_translations
from translane_server.requests.responses import TranslationBuilder, empty_translation, rate_nothing
from translane_server.requests.source import Source
from translane_server.sentence import Sentence, SentenceResult
from translane_server.text.spacing import target_gaps


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
