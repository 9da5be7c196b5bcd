"""Reads requests: checks them, and makes the sentences to decode."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from translane.options import Format
from translane.requests import TranslationRequest
from translane_server.bundle.manifest import Manifest
from translane_server.core.budget import UNLIMITED, Budget, OverBudgetError
from translane_server.core.errors import FieldViolation, InvalidRequestError
from translane_server.text.glossaries import StoredGlossaries
from translane_server.text.markup.document import Document, MarkupError
from translane_server.text.markup.html import parse_html
from translane_server.text.markup.markdown import parse_markdown
from translane_server.text.markup.xliff import parse_xliff
from translane_server.text.sentences import TooManySentencesError
from translane_server.text.tokenizer import Tokenizer, tokenize
from translane_server.translation.limits import (
    RequestLimits,
    check_sizes,
    check_tokens,
    refuse,
    takes_too_long,
)
from translane_server.translation.options import violation
from translane_server.translation.plan import RequestPlan, RequestPlans, Segment
from translane_server.translation.segmentation import SPLIT_ADVICE, PreparedText, cut
from translane_server.translation.translations import PreparedRequest, source_surfaces

_TEXT: str = Format.TEXT

# What reads each format. Plain text needs no reader.
_PARSERS: Mapping[str, Callable[[str], Document]] = {
    Format.HTML: parse_html,
    Format.MARKDOWN: parse_markdown,
    Format.XLIFF: parse_xliff,
}


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

        The names are checked already, before the model was looked up; see `check_names`.

        Returns:
            How many sentences the request has, as far as can be told without tokens. A text without tokens counts, too:
            it takes as long to read as another one.

        Raises:
            InvalidRequestError: there are no texts, or a field is too large.
        """
        check_sizes(request, self._limits)
        if not request.texts:
            refuse([FieldViolation("texts", "is empty; at least one is needed"), *self._plans.check(request)])
        return len(request.texts)

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
            plan = self._plans.of(request)
            texts, wrong = self._prepared(request, plan, budget)
            wrong += plan.wrong
            if request.streamed and (request.options.num_hypotheses or 1) > 1:
                wrong.append(violation("num_hypotheses", f"is {request.options.num_hypotheses}, and a stream has one"))
            if wrong:
                raise InvalidRequestError(*wrong)
            sentences = []
            for text in texts:
                for segment in text.segments:
                    if plan.terms:
                        budget.check()
                    sentences.append(plan.sentence(segment))
                    if request.streamed and plan.options.replace_unknowns:
                        budget.check()
                        source_surfaces(plan, segment)  # here, because a stream builds its text on the event loop
            return PreparedRequest(plan, texts, sentences)
        except OverBudgetError:
            raise takes_too_long("text" if request.streamed else "texts", budget) from None

    def _prepared(
        self, request: TranslationRequest, plan: RequestPlan, budget: Budget
    ) -> tuple[list[PreparedText], list[FieldViolation]]:
        """Return the sentences of each text, and what is wrong with the texts."""
        texts = request.texts
        if request.format != _TEXT:
            documents, wrong = _documents(request, budget)
            return ([], wrong) if wrong else self._cut(request, plan, budget, [None] * len(texts), documents)
        plain = [plan.is_plain(text) for text in texts]
        alone = texts if all(plain) else [text for text, is_plain in zip(texts, plain, strict=True) if is_plain]
        encoded = tokenize(plan.pair.encode, alone, budget)
        if alone is texts and plan.stay_whole(encoded):
            prepared = [
                PreparedText((Segment(text, ids),) if ids else ()) for text, ids in zip(texts, encoded, strict=True)
            ]
            if plan.splits is None:  # no sentence is too long
                return prepared, []
            return prepared, check_tokens(request.field, encoded, self._limits.tokens.source, SPLIT_ADVICE)
        ids = iter(encoded)
        return self._cut(request, plan, budget, [next(ids) if is_plain else None for is_plain in plain])

    def _cut(
        self,
        request: TranslationRequest,
        plan: RequestPlan,
        budget: Budget,
        known: Sequence[Sequence[int] | None],
        documents: Sequence[Document] = (),
    ) -> tuple[list[PreparedText], list[FieldViolation]]:
        """Return the sentences of each text. All sentences together fit the limit of waiting sentences.

        Args:
            request: the request.
            plan: how texts are cut.
            budget: how long this may take.
            known: the tokens of each text that may be a plain sentence.
            documents: the texts as blocks, if they have markup.
        """
        most = self._limits.max_queue_size
        prepared: list[PreparedText] = []
        wrong: list[FieldViolation] = []
        remaining = most
        for number, (text, ids) in enumerate(zip(request.texts, known, strict=True)):
            name = request.field.format(number)
            try:
                if ids is not None and plan.stay_whole([ids]):
                    wrong += check_tokens(name, [ids], self._limits.tokens.source, SPLIT_ADVICE)
                    prepared.append(PreparedText((Segment(text, ids),) if ids else ()))
                else:
                    document = documents[number] if documents else None
                    prepared.append(cut(plan, name, text, document, remaining, budget))
            except TooManySentencesError:
                problem = f"has too many sentences, at most {most} are accepted in a request"
                return [], [*wrong, FieldViolation(name, problem)]
            except InvalidRequestError as error:  # reported together with all other violations
                wrong += error.violations
                continue
            remaining -= len(prepared[-1].segments)
        return prepared, wrong


def _documents(request: TranslationRequest, budget: Budget) -> tuple[list[Document], list[FieldViolation]]:
    """Return texts with markup as blocks, and what is wrong with the markup."""
    parse = _PARSERS.get(request.format)
    if parse is None:
        return [], [FieldViolation("format", f"{request.format} is not supported by this server")]
    documents = []
    wrong = []
    for number, text in enumerate(request.texts):
        budget.check()
        try:
            documents.append(parse(text))
        except MarkupError as error:
            wrong.append(FieldViolation(request.field.format(number), str(error)))
    return documents, wrong
