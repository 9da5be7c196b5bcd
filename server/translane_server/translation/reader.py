"""Reads requests: checks them, cuts texts into sentences, and takes out of them what is kept."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence

from translane.options import Format
from translane.requests import TranslationRequest
from translane.results import Treatment
from translane_server.bundle.manifest import Manifest
from translane_server.core.budget import UNLIMITED, Budget, OverBudgetError
from translane_server.core.errors import FieldViolation, InvalidRequestError, RequestTooLongError
from translane_server.text.characters import untold_letters
from translane_server.text.glossaries import StoredGlossaries
from translane_server.text.marked_text import MarkedBlock, MarkedText, TaggedText, TakenOut
from translane_server.text.markup.document import Document, MarkupError
from translane_server.text.markup.html import parse_html
from translane_server.text.markup.markdown import parse_markdown
from translane_server.text.markup.xliff import parse_xliff
from translane_server.text.numbers import narrowed
from translane_server.text.placeholders import Kept, Kind, Span, cut_at, not_within, untranslatable, without_overlaps
from translane_server.text.sentences import (
    LongCharacterError,
    SplitLimits,
    SplitText,
    TooManySentencesError,
    maybe_several,
    split_text,
)
from translane_server.text.stand_ins import Found, StandIn, numbered, own_symbols, with_stand_ins
from translane_server.text.tokenizer import Tokenizer, tokenize
from translane_server.text.unknown_parts import unknown_parts, with_left_out
from translane_server.translation.limits import (
    CHARACTERS_PER_TOKEN,
    RequestLimits,
    check_sizes,
    check_tokens,
    refuse,
    takes_too_long,
)
from translane_server.translation.options import violation
from translane_server.translation.plan import PreparedText, RequestPlan, RequestPlans, Segment
from translane_server.translation.translations import PreparedRequest, source_spans

_TEXT: str = Format.TEXT

# What reads each format. Plain text needs no reader.
_PARSERS: Mapping[str, Callable[[str], Document]] = {
    Format.HTML: parse_html,
    Format.MARKDOWN: parse_markdown,
    Format.XLIFF: parse_xliff,
}


_SPLIT_ADVICE = "; split_sentences cuts it into sentences"

# How often a sentence is searched for unknown characters. Tokens around a part that is taken out may be others.
_SEARCHES = 3


class TranslateReader:
    """Turns requests to one model into sentences. The `stored` glossaries are other ones after a change."""

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

        The names are checked already, before the model was looked up; see `check_names`. Return how many sentences the
        request has, as far as can be told without tokens. A text without tokens takes as long to read as another one.

        Raises:
            InvalidRequestError: there are no texts, or a field is too large.
        """
        check_sizes(request, self._limits)
        if not request.texts:
            refuse([FieldViolation("texts", "is empty; at least one is needed"), *self._plans.check(request)])
        return len(request.texts)

    def read(self, request: TranslationRequest, budget: Budget = UNLIMITED) -> PreparedRequest:
        """Tokenize a request that passed `check`. A long request takes too long for the event loop.

        Raises:
            InvalidRequestError: the request is wrong, or takes longer than the budget. The error names all that is
                wrong.
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
            sentences, has_to_keep = [], False
            for text in texts:
                for segment in text.segments:
                    if plan.terms or plan.options.check_numbers:
                        budget.check()
                    sentences.append(plan.sentence(segment))
                    has_to_keep = has_to_keep or segment.has_to_keep
                    if request.streamed and plan.options.replace_unknowns:
                        budget.check()
                        source_spans(plan, segment)  # here, because a stream builds its text on the event loop
            return PreparedRequest(plan, texts, sentences, has_to_keep)
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
            return prepared, check_tokens(request.field, encoded, self._limits.tokens.source, _SPLIT_ADVICE)
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

        The tokens of texts that may be plain sentences are `known`. Texts with markup are `documents`.
        """
        most = self._limits.max_queue_size
        prepared: list[PreparedText] = []
        wrong: list[FieldViolation] = []
        remaining = most
        for number, (text, ids) in enumerate(zip(request.texts, known, strict=True)):
            name = request.field.format(number)
            try:
                if ids is not None and plan.stay_whole([ids]):
                    wrong += check_tokens(name, [ids], self._limits.tokens.source, _SPLIT_ADVICE)
                    prepared.append(PreparedText((Segment(text, ids),) if ids else ()))
                else:
                    document = documents[number] if documents else None
                    prepared.append(_cut_text(plan, name, text, document, remaining, budget))
            except TooManySentencesError:
                problem = f"has too many sentences, at most {most} are accepted in a request"
                if wrong:
                    return [], [*wrong, FieldViolation(name, problem)]
                raise RequestTooLongError(FieldViolation(name, problem)) from None
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


def _cut_text(
    plan: RequestPlan, field: str, text: str, document: Document | None, sentences: int, budget: Budget
) -> PreparedText:
    """Cut the text of a field. A text with markup is a document, too.

    Raises:
        InvalidRequestError: a part that cannot be cut is too long, or a text that stays whole has too many tokens.
        TooManySentencesError: the text has more than `sentences`.
    """
    limit = plan.tokens.source
    segments: list[Segment] = []
    gaps = []
    halved = preserved = 0
    for tagged in document.blocks if document else (TaggedText(text),):
        block = _Block(plan, tagged, document, budget)
        try:
            split = block.split(sentences - len(segments))
        except LongCharacterError as error:
            most = CHARACTERS_PER_TOKEN * limit
            problem = f"has a character of {error.length} code points, at most {most} are accepted"
            raise InvalidRequestError(FieldViolation(field, problem)) from None
        longest = max(map(len, split.source_ids), default=0)
        if longest > limit:
            what = f"has {longest} tokens" if plan.splits is False else f"has a character of {longest} tokens"
            problem = f"{what}, at most {limit} are accepted{_SPLIT_ADVICE if plan.splits is False else ''}"
            raise InvalidRequestError(FieldViolation(field, problem))
        found, between = block.segments(split)
        segments += found
        gaps.append(between)
        halved += split.halved
        preserved += sum(part.kind is not Kind.LEFT_OUT for part in block.kept)
    several = len(segments) if len(segments) > 1 else 0
    treatment = Treatment(several, halved, preserved) if several or halved or preserved else None
    return PreparedText(segments, gaps, document, treatment, text)


class _Block:
    """Cuts a block of text, and keeps what is not translated."""

    def __init__(self, plan: RequestPlan, block: TaggedText, document: Document | None, budget: Budget) -> None:
        self._plan = plan
        self._block = block
        self._document = document
        self._budget = budget
        self._places = sorted({tag.place for tag in block.tags})
        found = plan.patterns.find(block.text, budget) if plan.patterns else []
        if plan.preserves:
            parts = untranslatable(block.text)
            found = without_overlaps(parts, not_within(found, parts))
        if plan.stand_ins:
            found = without_overlaps(own_symbols(block.text), found)
        self._found = cut_at(found, self._places)
        self._unmarked = MarkedBlock(TaggedText(block.text), self._found)
        self._unknown: dict[Span, list[Kept]] = {}  # of each sentence

    @property
    def kept(self) -> list[Kept]:
        """All parts that are taken out."""
        return sorted([*self._found, *(part for parts in self._unknown.values() for part in parts)])

    def split(self, sentences: int) -> SplitText:
        """Cut the block into sentences."""
        plan, text = self._plan, self._block.text
        if plan.splits is False:
            span = (len(text) - len(text.lstrip()), len(text.rstrip()))
            ids = self._encode([span])[0] if span[0] < span[1] else []
            return SplitText((span,), (tuple(ids),)) if ids else SplitText((), ())
        limits = SplitLimits(plan.tokens.source, CHARACTERS_PER_TOKEN * plan.tokens.source, sentences)
        whole = plan.splits is None and not maybe_several(text)
        return split_text(text, plan.source_language, self._encode, limits, self._budget, kept=self._found, whole=whole)

    def segments(self, split: SplitText) -> tuple[list[Segment], list[str]]:
        """Return the sentences of the block, and what stands between them."""
        block = MarkedBlock(self._block, self.kept)
        escape = self._document.escape if self._document else str
        segments = [
            Segment(text, ids, marked=marked, escape=escape)
            for (text, marked), ids in zip(self._sentences(block, split.spans), split.source_ids, strict=True)
        ]
        gaps = block.gaps(split.spans)
        if self._plan.stand_ins:
            segments = self._with_stand_ins(segments, split.spans)
        return segments, gaps

    def _sentences(self, block: MarkedBlock, spans: Sequence[Span]) -> Iterator[tuple[str, MarkedText | None]]:
        """Yield the text of each sentence, and its marks if they are to be put into its translation."""
        last = -1
        for start, end in spans:
            marked = block.sentence(start, end, last).marked
            last = end
            yield marked.text, marked if marked.marks or self._document else None

    def _with_stand_ins(self, segments: list[Segment], spans: Sequence[Span]) -> list[Segment]:
        """Put stand-ins in the place of what is kept, of names and of numbers.

        A sentence that has too many tokens with stand-ins stays without.
        """
        plan = self._plan
        parts = [self._stand_ins_of(span) for span in spans]
        if not any(parts):
            return segments
        tokens = {symbol: token for token, symbol in plan.stand_ins.items()}
        all_parts = [part for of_sentence in parts for part in of_sentence]
        replaced, kept, moved = with_stand_ins(self._block, self.kept, spans, all_parts)
        sentences = self._sentences(MarkedBlock(replaced, kept), moved)
        found = []
        for segment, of_sentence, (text, marked) in zip(segments, parts, sentences, strict=True):
            self._budget.check()
            ids = plan.pair.encode([text])[0] if of_sentence else ()
            if not ids or len(ids) > plan.tokens.source:
                found.append(segment)
                continue
            written = {tokens[part.symbol]: part.text for part in of_sentence}
            without = narrowed(segment.text)
            segment.spelled = [
                part.text for part in of_sentence if narrowed(self._block.text[part.start : part.end]) in without
            ]
            found.append(Segment(text, ids, marked=marked, escape=segment.escape, stand_ins=written, otherwise=segment))
        return found

    def _stand_ins_of(self, span: Span) -> list[StandIn]:
        """Return what stand-ins stand for in a sentence."""
        plan, text = self._plan, self._block.text
        kept, unknown = list(self._unmarked.kept_in(*span)), self._unknown.get(span, [])
        others: list[Found] = []
        has_terms = plan.terms and plan.terms.in_sentence(text[span[0] : span[1]])  # a name may be a part of one
        if plan.names_and_numbers and not has_terms and (found := plan.names_and_numbers.find(text[span[0] : span[1]])):
            taken = {place for part in kept for place in range(part.start, part.end)}
            others = [
                Found(start, end, new)
                for start, end, new in ((span[0] + one, span[0] + other, new) for one, other, new in found)
                if taken.isdisjoint(range(start, end))
                and bisect_right(self._places, start) == bisect_left(self._places, end)  # no mark is within
                and not any(part.start < start < part.end or part.start < end < part.end for part in unknown)
            ]
        # An unknown part within a name or a number goes with it.
        inside = {place for each in others for place in range(each.start, each.end)}
        kept += [part for part in unknown if part.start not in inside]
        return numbered(text, kept, others, [*plan.stand_ins.values()], span, set(self._places))

    def _encode(self, spans: Sequence[Span]) -> list[list[int]]:
        """Return the tokens of sentences without what is kept; none if only what is kept has letters or digits."""
        plan, unknown = self._plan, self._plan.special_ids.unk
        taken = [self._unmarked.sentence(*span) for span in spans]
        texts = [
            "" if each.marked.marks and not any(map(str.isalnum, each.marked.text)) else each.marked.text
            for each in taken
        ]
        encoded = tokenize(plan.pair.encode, texts, self._budget)
        if plan.preserves:
            for place, ids in enumerate(encoded):
                if unknown in ids and len(ids) <= plan.tokens.source:
                    encoded[place] = self._without_unknown(spans[place], taken[place], ids)
        return encoded

    def _without_unknown(self, span: Span, taken: TakenOut, ids: list[int]) -> list[int]:
        """Take the unknown parts but for terms out of a sentence, and return the tokens of the rest."""
        pair, unknown = self._plan.pair, self._plan.special_ids.unk
        found: list[Kept] = []
        within = self._unmarked.kept_in(*span)
        for _ in range(_SEARCHES):
            self._budget.check()
            text = taken.marked.text
            of_terms = self._plan.terms.places(text) if self._plan.terms else ()
            parts = unknown_parts(text, ids, pair.source_spans(text), unknown, of_terms)
            if not parts:
                break
            for start, end in parts:
                found += _in_block(taken, start, end)
            block = MarkedBlock(TaggedText(self._block.text), sorted([*within, *found]))
            taken = block.sentence(*span)
            text = taken.marked.text
            ids = pair.encode([text])[0] if any(map(str.isalnum, text)) else []
            if unknown not in ids:
                break
        unknown_here = sorted(found)
        if ids:  # or nothing is left, and the text is its own translation
            untold = untold_letters(self._plan.source_language, self._plan.target_language)
            unknown_here = with_left_out(self._block.text, span, unknown_here, within, untold)
        self._unknown[span] = cut_at(unknown_here, self._places)
        return ids


def _in_block(taken: TakenOut, start: int, end: int) -> list[Kept]:
    """Return where a part of a sentence is in the block: several parts if something is taken out of its middle."""
    found: list[Kept] = []
    for place in range(start, end):
        at = taken.in_block(place)
        if found and found[-1].end == at:
            found[-1] = found[-1]._replace(end=at + 1)
        else:
            found.append(Kept(at, at + 1))
    return found
