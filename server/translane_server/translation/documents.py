"""Translates documents: reads a file on a thread, translates its texts in windows, and writes the file on a thread.

A document has more texts than a request may have. So its texts travel as requests of some texts each, two at a time:
each one waits in its caller's part of the queue, and is paid for, as any other request of this caller. Where there is
no room or no allowance for a window, the document waits for it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

from translane.options import Format
from translane.requests import DocumentRequest, TranslationRequest
from translane.results import (
    DocumentNote,
    DocumentProgress,
    TermOutcome,
    TermReport,
    TranslatedDocument,
    Translations,
    Treatment,
)
from translane_server.core.budget import Budget, OverBudgetError
from translane_server.core.errors import (
    FieldViolation,
    InvalidRequestError,
    QueueFullError,
    SentenceRateError,
    TooManySentencesError,
)
from translane_server.text.documents import KINDS, Document, DocumentError, parse
from translane_server.translation.limits import MOST_PRESERVED, Named, takes_too_long, too_many
from translane_server.translation.several_models import ByLanguage, together
from translane_server.translation.terms import MAX_REPORTS
from translane_server.translation.tokenizer_pool import TokenizerPool
from translane_server.translation.translations import request_timing
from translane_server.translation.translator import Ticket, Translates

_WINDOW = 128  # texts of a request
_AT_ONCE = 2  # requests
_PULSE = 1.0  # seconds between two reports of progress
_MOST_NOTES = 100
_SAMPLE = 20_000  # characters that the language of a document is found from

# The options that a document cannot have: it holds one translation, and none of its details.
_OF_ONE_TEXT = (
    "target_prefix",
    "return_tokens",
    "return_token_scores",
    "return_alignment",
    "return_alternatives",
    "return_quality",
)
# What is said of a term in a document: the first of these that is true of any of its texts.
_OUTCOMES = (
    TermOutcome.MISSED,
    TermOutcome.TOO_MANY,
    TermOutcome.UNSPELLABLE,
    TermOutcome.APPLIED,
    TermOutcome.PRESERVED,
    TermOutcome.NOT_FOUND,
    TermOutcome.UNSPECIFIED,
)
_COUNTS = ("sentences", "cut_sentences", "preserved", "stand_ins", "decoded_again", "missing_numbers")
_LACKING = (*_OUTCOMES[:3], TermOutcome.PRESERVED)


class Models(Protocol):
    """What finds the model of a request; `most_texts` are the most texts of a request."""

    most_texts: int
    pool: TokenizerPool

    def translator(self, request: Named) -> Translates: ...


@dataclass(frozen=True)
class OpenDocument:
    """A document that is read."""

    document: Document
    size: int  # of its file [bytes]
    # the request without texts, with which each window is translated. Its languages are known.
    request: TranslationRequest
    found: str | None  # the language that was found, where the request says "auto"; otherwise None


async def open_document(request: DocumentRequest, models: Models, caller: str) -> OpenDocument:
    """Read a document, and find its language where the request does not say it.

    Raises:
        RequestError: the request or the document is wrong, or too much waits to be read.
    """
    kind = KINDS.get(request.mime_type)
    wrong = list(_violations(request))
    if kind is None or wrong:
        raise InvalidRequestError(*wrong)
    translator = models.translator(request)  # refuses names before a file is read
    content = request.content

    def read(budget: Budget) -> Document:
        try:
            return parse(content, request.mime_type, replace_translations=request.replace_translations, budget=budget)
        except OverBudgetError:
            raise takes_too_long("content", budget) from None
        except DocumentError as error:
            raise _wrong(error) from None

    document = await models.pool.read(len(content), read, caller)
    texts = document.texts
    options = replace(request.options, preserve=(*request.options.preserve, *kind.preserve))
    names = request.model, request.source_language, request.target_language
    form = texts[0].format if texts else Format.TEXT
    without_texts = TranslationRequest((), *names, options, form)
    if not isinstance(translator, ByLanguage):
        return OpenDocument(document, len(content), without_texts, None)
    sample = "\n".join([each.text for each in texts])[:_SAMPLE]
    (found,) = await translator.find(replace(without_texts, texts=(sample,)), caller)
    return OpenDocument(document, len(content), replace(without_texts, source_language=found), found)


async def translate_document(
    opened: OpenDocument, translator: Translates, models: Models, ticket: Ticket
) -> AsyncGenerator[DocumentProgress | TranslatedDocument]:
    """Translate a document. Yield its progress, at least each second, and at last the document.

    Closing the generator ends the work.

    Raises:
        RequestError: a text is refused, decoding fails, or the translations do not fit into the file.
    """
    work = _Work(opened, translator, models, ticket)
    yield work.progress
    task = asyncio.create_task(work.whole())
    try:
        while not (await asyncio.wait([task], timeout=_PULSE))[0]:
            yield work.progress
        document = task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    yield work.progress
    yield document


class _Work:
    """A document that is translated."""

    def __init__(self, opened: OpenDocument, translator: Translates, models: Models, ticket: Ticket) -> None:
        self._opened = opened
        self._texts = opened.document.texts
        self._translator = translator
        self._pool = models.pool
        self._window = max(1, min(_WINDOW, models.most_texts, ticket.most_sentences // _AT_ONCE))
        self._ticket = ticket
        self._facts: dict[str, Any] = {}
        self._translations: dict[int, str] = {}  # by the number of the text
        self._answers: list[Translations] = []  # without the translations
        self._sums = _Sums()
        self._begins = iter(range(0, len(self._texts), self._window))  # first texts of the windows to take

    @property
    def progress(self) -> DocumentProgress:
        return DocumentProgress(len(self._translations), len(self._texts))

    async def whole(self) -> TranslatedDocument:
        """Translate all texts, and write the file."""
        started = time.perf_counter()
        await together([self._take_windows() for _ in range(_AT_ONCE)])
        translations = [self._translations[number] for number in range(len(self._texts))]

        def write(budget: Budget) -> bytes:
            try:
                return self._opened.document.render(translations, budget)
            except DocumentError as error:
                raise _wrong(error) from None

        # The whole file is read once more, however little of it was translated.
        work = self._opened.size + sum(map(len, translations))
        content = await self._pool.build(work, write, self._ticket.caller)
        timings = [each.timing for each in self._answers]
        cached, total = sum([each.cached_texts for each in timings]), time.perf_counter() - started
        return TranslatedDocument(
            content,
            request_timing(timings, total, cached),
            self._sums.treatment(self._opened.found),
            tuple(self._sums.notes[number] for number in sorted(self._sums.notes)),
            tuple(dict.fromkeys(name for each in self._answers for name in each.models)),
            {name: version for each in self._answers for name, version in each.versions.items()},
        )

    async def _take_windows(self) -> None:
        for begin in self._begins:
            await self._translate(begin, min(begin + self._window, len(self._texts)))

    async def _translate(self, begin: int, end: int) -> None:
        """Translate some texts as one request; as several where they are too many for one, or have no room."""
        while True:
            middle = (begin + end) // 2
            try:
                answer = await self._ask(begin, end)
            except (QueueFullError, TooManySentencesError, SentenceRateError) as error:
                await asyncio.sleep(error.retry_after)
            except InvalidRequestError as error:
                number = _number_of(error.violations[0].field)
                if end - begin == 1 or len(error.violations) > 1 or number is None:
                    raise self._located(error, begin) from None
                if number:  # the text may be as good as those before it, and all of them too many
                    middle = begin + number
            else:
                break
            if end - begin > 1:
                await self._translate(begin, middle)
                begin = middle
        self._answers.append(replace(answer, translations=()))
        for number, each in enumerate(answer.translations, begin):
            self._translations[number] = each.text
            if each.treatment:
                self._sums.add(number, self._texts[number].line, each.treatment)
        self._ticket.progress()

    async def _ask(self, begin: int, end: int) -> Translations:
        paid = 0
        facts: dict[str, Any] = {}

        def pay(sentences: int) -> None:
            nonlocal paid
            self._ticket.pay(sentences, paid)
            paid += sentences

        request = replace(self._opened.request, texts=[each.text for each in self._texts[begin:end]])
        try:
            answer = await self._translator.translate(request, replace(self._ticket, pay=pay, note=facts.update))
        finally:
            self._ticket.give_back(paid)
        # A request tells some facts of itself more than once, and only the last time counts.
        for name, value in facts.items():
            self._facts[name] = self._facts.get(name, 0) + value if isinstance(value, int) else value
        self._ticket.note(**self._facts)
        return answer

    def _located(self, error: InvalidRequestError, begin: int) -> InvalidRequestError:
        """Return an error that names lines of the document in the place of texts of a window."""
        violations = []
        for each in error.violations:
            number = _number_of(each.field)
            if number is not None:
                line = self._texts[begin + number].line
                each = FieldViolation("content", f"line {line}: {each.description}")
            violations.append(each)
        return InvalidRequestError(*violations)


class _Sums:
    """What was done with the texts of a document. A report of each text would fill the memory."""

    def __init__(self) -> None:
        # the first notes of the document, by the number of their text and their own
        self.notes: dict[tuple[int, int], DocumentNote] = {}
        self._any = False
        self._counts = Counter[str]()
        self._terms: dict[tuple[str, str, str], TermReport] = {}
        self._pivot: str | None = None

    def add(self, number: int, line: int, treatment: Treatment) -> None:
        """Add what was done with a text."""
        self._any = True
        self._pivot = self._pivot or treatment.pivot_language
        for name in _COUNTS:
            self._counts[name] += getattr(treatment, name)
        for report in treatment.terms:
            key = report.source, report.target, report.glossary
            known = self._terms.setdefault(key, report)
            if _OUTCOMES.index(report.outcome) < _OUTCOMES.index(known.outcome):
                self._terms[key] = report
        notes = [DocumentNote(line, treatment.cut_sentences)] if treatment.cut_sentences else []
        notes += [DocumentNote(line, term=term) for term in treatment.terms if term.outcome in _LACKING]
        self.notes |= {(number, place): note for place, note in enumerate(notes[:_MOST_NOTES])}
        for late in sorted(self.notes)[_MOST_NOTES:] if notes else ():
            del self.notes[late]

    def treatment(self, found: str | None) -> Treatment | None:
        """Return the sums; None if nothing was done. `found` is the language that was found."""
        if not self._any and found is None:
            return None
        worst_first = sorted(self._terms.values(), key=lambda term: _OUTCOMES.index(term.outcome))
        terms = tuple(worst_first[:MAX_REPORTS])
        return Treatment(**self._counts, terms=terms, source_language=found, pivot_language=self._pivot)


def _violations(request: DocumentRequest) -> Iterator[FieldViolation]:
    kind = KINDS.get(request.mime_type)
    if kind is None:
        yield FieldViolation("mime_type", f"must be one of {', '.join(KINDS)}")
    elif request.replace_translations and not kind.has_translations:
        yield FieldViolation("replace_translations", f"must be false: {request.mime_type} has no translations")
    options = request.options
    most = MOST_PRESERVED - len(kind.preserve if kind else ())
    yield from too_many("options.preserve", len(options.preserve), most)
    if (options.num_hypotheses or 1) > 1:
        yield FieldViolation("options.num_hypotheses", "must be 1: a document holds one translation")
    for name in _OF_ONE_TEXT:
        if getattr(options, name):
            yield FieldViolation(f"options.{name}", "must not be set: a document has no place for it")


def _number_of(field: str) -> int | None:
    """Return the number in the name of a text's field, such as texts[3]; 0 for all texts; None for other fields."""
    name, _, rest = field.partition("[")
    return int(rest.partition("]")[0] or 0) if name in ("texts", "request") else None


def _wrong(error: DocumentError) -> InvalidRequestError:
    return InvalidRequestError(FieldViolation("content", str(error)))
