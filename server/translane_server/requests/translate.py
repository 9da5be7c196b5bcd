"""Turns requests for translations into sentences to decode."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from translane.v1 import translation_pb2 as pb
from translane_server.budget import UNLIMITED, Budget, OverBudgetError
from translane_server.errors import FieldViolation, InvalidRequestError
from translane_server.manifest import Manifest
from translane_server.requests.cutting import SPLIT_ADVICE
from translane_server.requests.formats import FORMATS, check_format
from translane_server.requests.limits import (
    RequestLimits,
    TranslationRequest,
    check_names,
    check_sizes,
    check_tokens,
    refuse,
    takes_too_long,
)
from translane_server.requests.manners import Manner, Manners
from translane_server.requests.prepared import PreparedRequest, PreparedText
from translane_server.requests.source import Source
from translane_server.requests.tokenizing import tokenize
from translane_server.text.halving import TooManySentencesError
from translane_server.text.markup.document import Document, MarkupError
from translane_server.text.stored_glossaries import StoredGlossaries
from translane_server.text.tokenizer import Tokenizer


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
        self._manners = Manners(manifest, tokenizer, limits, stored)

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
            refuse([FieldViolation("texts", "is empty; at least one is needed"), *self._manners.check(request)])
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
        manner = self._manners.of(request)
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

    def _prepared(
        self, request: TranslationRequest, texts: Sequence[str], manner: Manner, budget: Budget
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
        manner: Manner,
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
        self, request: TranslationRequest, texts: Sequence[str], manner: Manner, budget: Budget
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


def _check_stream(request: TranslationRequest) -> list[FieldViolation]:
    if isinstance(request, pb.TranslateRequest) or (hypotheses := request.options.num_hypotheses) <= 1:
        return []
    return [FieldViolation("options.num_hypotheses", f"is {hypotheses}, and a stream has one")]


def _texts(request: TranslationRequest) -> list[str]:
    return list(request.texts) if isinstance(request, pb.TranslateRequest) else [request.text]


def _field(request: TranslationRequest) -> str:
    """Return the name of the texts' field, with {} for the number of a text."""
    return "texts[{}]" if isinstance(request, pb.TranslateRequest) else "text"
