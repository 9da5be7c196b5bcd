"""Decodes a sentence again whose translation lacks stand-ins or numbers that it must have."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from translane_server.core.budget import Budget
from translane_server.core.errors import RequestError
from translane_server.engine.options import RequiredPhrase
from translane_server.engine.sequence import Hypothesis, Sentence, SentenceResult, Timing
from translane_server.text.numbers import missing_numbers, written_for
from translane_server.translation.plan import RequestPlan, Segment
from translane_server.translation.terms import MAX_TERMS_OF_SENTENCE
from translane_server.translation.tokenizer_pool import TokenizerPool
from translane_server.translation.translations import generated_tokens

_BEAMS = 4  # of a sentence that is decoded again
# A sentence that is decoded again may get twice the tokens of its first result, those of its required phrases, and so
# many more. Where the first result runs on, the source's tokens count in its place. Without this bound, a search that
# must write what the model does not want may run on, too.
_MORE_TOKENS = 16

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
Decode = Callable[[Sequence[Sentence]], Awaitable[Sequence[SentenceResult]]]

_Faults = tuple[int, int]
"""What is wrong with a hypothesis, as two counts.

The first counts stand-ins that are missing, are there twice or do not belong there, and names and numbers that the
model spells itself and that are missing. A hypothesis that the default length cuts off has one more: it runs on. The
second counts missing numbers.
"""


@dataclass(slots=True)
class _Found:
    """The hypotheses of a sentence that its request gets, best first."""

    segment: Segment  # of the request
    decoded: Segment  # the segment, or what was decoded in its place
    hypotheses: Sequence[Hypothesis]
    faults: Sequence[_Faults]  # of each hypothesis
    timing: Timing

    @property
    def is_faulty(self) -> bool:
        """Whether any of the hypotheses has a fault."""
        return any(map(any, self.faults))

    def take(self, other: _Found) -> None:
        """Take the hypotheses of `other` if they are as many, and the worst of them has fewer faults.

        Where the worst ones are equal, the second worst decide, and so on.
        """
        self.timing = Timing(*map(operator.add, self.timing, other.timing))
        is_enough = len(other.hypotheses) >= len(self.hypotheses)
        if is_enough and sorted(other.faults, reverse=True) < sorted(self.faults, reverse=True):
            self.decoded, self.hypotheses, self.faults = other.decoded, other.hypotheses, other.faults


@dataclass
class SecondDecoding:
    """Chooses the results of a request's sentences, and decodes again what lacks a number or a stand-in.

    Texts are made and searched in the `pool`. Where a second decoding is refused or fails, the first result stays, and
    its segment is not settled.
    """

    plan: RequestPlan
    decode: Decode
    pool: TokenizerPool
    caller: str
    generated: int = 0  # tokens of what was decoded again

    async def chosen(self, segments: Sequence[Segment], results: Sequence[SentenceResult]) -> list[SentenceResult]:
        """Return, for each sentence, the result with the fewest faults: the given one, or that of a second decoding.

        A sentence with faults is decoded with beams that require its stand-ins and numbers. If a hypothesis still has
        faults in its stand-ins, the sentence is then decoded without stand-ins. Each segment becomes the sentence that
        its result is a translation of.
        """
        found = await self._read_results(segments, segments, results)
        for way in (self._with_phrases, self._without_stand_ins):
            size = sum(len(each.segment.ids) for each in found if each.is_faulty)
            read = partial(_each, way, found)
            again = {n: each for n, each in enumerate(await self.pool.build(size, read, self.caller)) if each}
            if not again:
                continue
            others = [found[number].segment for number in again]
            results = await self._again(others, [sentence for _, sentence in again.values()])
            if not results:
                break
            others_found = await self._read_results(others, [decoded for decoded, _ in again.values()], results)
            for number, other in zip(again, others_found, strict=True):
                found[number].take(other)
        for each in found:
            each.segment.become(each.decoded)
            each.segment.missing = each.faults[0][1]
        return [SentenceResult(tuple(each.hypotheses), each.timing) for each in found]

    async def continued(self, segment: Segment, result: SentenceResult) -> SentenceResult:
        """Return the result of a streamed sentence, whose text is sent already but for the last token.

        If stand-ins are missing, the sentence is decoded on from what is sent, with beams that require them. The result
        stays if no hypothesis then writes them all and ends. Missing numbers are only counted. A segment whose result
        had faults is not settled: outside a stream, its translation may be better.
        """
        hypothesis = result.hypotheses[0]
        result = result._replace(hypotheses=(hypothesis,))
        segment.is_settled = not any(self._faults(segment, hypothesis))
        missing = {token for token in segment.stand_ins if token not in hypothesis.token_ids}
        again = self._required(segment) if missing else None
        given = len(self.plan.forced_ids)
        forced = hypothesis.token_ids[: max(given, len(hypothesis.token_ids) - 1)]
        # `max_length` bounds what was generated: `forced` without the tokens that were given, and those that count
        length = again.options.max_length - len(forced) + given - again.counted_ids if again else 0
        if again and length >= 1:
            most = len(forced) + _room(again.required_phrases)
            options = replace(again.options, max_length=min(length, most), min_length=0)
            word_follows = again.word_follows and len(forced) == given
            again = again._replace(options=options, forced_ids=forced, counted_ids=0, word_follows=word_follows)
            for found in await self._again([segment], [again]):
                ended = [each for each in found.hypotheses if each.is_complete or not hypothesis.is_complete]
                right = [each for each in ended if missing.issubset(each.token_ids)]
                timing = Timing(*map(operator.add, result.timing, found.timing))
                result = SentenceResult(tuple(right[:1]) or result.hypotheses, timing)
        segment.missing = self._faults(segment, result.hypotheses[0])[1]
        return result

    async def _again(self, segments: Sequence[Segment], sentences: Sequence[Sentence]) -> Sequence[SentenceResult]:
        """Decode sentences of segments once more. Return nothing if there is no room for them, or decoding fails."""
        try:
            results = await self.decode(sentences)
        except RequestError:
            for segment in segments:
                segment.is_settled = False
            return ()
        for segment in segments:
            segment.attempts += 1
        self.generated += generated_tokens(results)
        return results

    async def _read_results(
        self, segments: Sequence[Segment], decoded: Sequence[Segment], results: Sequence[SentenceResult]
    ) -> list[_Found]:
        """Return what the request gets of each result. `decoded` are the segments that the results translate."""
        found = [*zip(segments, decoded, results, strict=True)]
        size = generated_tokens([result for _, each, result in found if each.has_to_keep])
        return await self.pool.build(size, partial(_each, self._best, found), self.caller)

    def _best(self, item: tuple[Segment, Segment, SentenceResult]) -> _Found:
        """Return as many hypotheses of a sentence as the request wants: those with the fewest faults."""
        segment, decoded, result = item
        wanted = self.plan.options.num_hypotheses or 1
        faults: list[_Faults] = []
        for hypothesis in result.hypotheses:
            faults.append(self._faults(decoded, hypothesis))
            if sum(not any(each) for each in faults) == wanted:  # so many have no faults
                break
        places = sorted(sorted(range(len(faults)), key=faults.__getitem__)[:wanted])
        hypotheses = [result.hypotheses[place] for place in places]
        return _Found(segment, decoded, hypotheses, [faults[place] for place in places], result.timing)

    def _faults(self, segment: Segment, hypothesis: Hypothesis) -> _Faults:
        stand_ins, numbers = 0, 0
        if segment.stand_ins:
            written = Counter(token for token in hypothesis.token_ids if token in self.plan.stand_ins)
            stand_ins = sum(written[token] != (token in segment.stand_ins) for token in {*segment.stand_ins, *written})
        if segment.spelled or segment.numbers:
            (text,) = self.plan.pair.tokenizer.decode([hypothesis.token_ids])
            stand_ins += sum(word not in text for word in segment.spelled)
            numbers = len(missing_numbers(segment.numbers, text))
        if (segment.stand_ins or segment.spelled) and self.plan.options.max_length is None:
            stand_ins += not hypothesis.is_complete
        return stand_ins, numbers

    def _required(self, segment: Segment) -> Sentence | None:
        """Return the sentence with beams that write each of its stand-ins once.

        None: a sentence may have one beam only, or the request wants several samples or alternatives.
        """
        plan, sentence = self.plan, self.plan.sentence(segment)
        options = sentence.options
        beams = min(_BEAMS, plan.most_beams)
        if beams < 2 or (options.num_hypotheses > 1 and options.beam_size == 1):
            return None
        beams = max(beams, options.beam_size)
        # each with the space before it, if the vocabulary has spaces as pieces of their own
        symbols = [plan.spelling.phrase(plan.stand_ins[token]) for token in segment.stand_ins]
        phrases = [replace(symbol, once=True) for symbol in symbols if symbol]
        suppressed = (*options.suppressed_ids, *(token for token in plan.stand_ins if token not in segment.stand_ins))
        options = replace(
            options, beam_size=beams, num_hypotheses=beams, sampling=None, scores=True, suppressed_ids=suppressed
        )
        return sentence._replace(options=options, required_phrases=(*sentence.required_phrases, *phrases))

    def _with_phrases(self, found: _Found) -> tuple[Segment, Sentence] | None:
        """Return the sentence with beams that require its stand-ins and numbers.

        None: its hypotheses have no faults, or beams are not possible; see `_required`.
        """
        plan, segment = self.plan, found.segment
        if not found.is_faulty or not (again := self._required(segment)):
            return None
        languages = plan.source_language, plan.target_language
        numbers = [plan.spelling.phrase(written_for(number, *languages)) for number in segment.numbers]
        phrases = dict.fromkeys([*again.required_phrases, *(phrase for phrase in numbers if phrase)])
        required = tuple(phrases)[:MAX_TERMS_OF_SENTENCE]
        ended = [len(each.token_ids) for each in found.hypotheses if each.is_complete]
        longest = max(ended, default=len(segment.ids))
        length = 2 * longest + _room(required)
        options = replace(
            again.options, max_length=max(again.options.min_length, min(again.options.max_length, length))
        )
        return segment, again._replace(options=options, required_phrases=required)

    def _without_stand_ins(self, found: _Found) -> tuple[Segment, Sentence] | None:
        """Return the sentence without stand-ins; None if it has none, or if no hypothesis has faults in them."""
        other = found.segment.otherwise
        has_faults = any(stand_ins for stand_ins, _ in found.faults)
        return (other, self.plan.sentence(other)) if other and has_faults else None


def _room(phrases: Sequence[RequiredPhrase]) -> int:
    """How many tokens a sentence may get for phrases that it must have."""
    return sum(len(each.token_ids) for each in phrases) + _MORE_TOKENS


def _each(call: Callable[[_Item], _Result], items: Sequence[_Item], budget: Budget) -> list[_Result]:
    """Return what a call returns for each item; the budget may end the work."""
    found = []
    for item in items:
        budget.check()
        found.append(call(item))
    return found
