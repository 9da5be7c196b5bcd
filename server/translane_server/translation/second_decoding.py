"""Decodes sentences again whose translations lack what they must have."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from translane_server.core.budget import Budget
from translane_server.core.errors import RequestError
from translane_server.engine.sequence import Hypothesis, Sentence, SentenceResult, Timing
from translane_server.text.numbers import missing_numbers, written_for
from translane_server.translation.plan import RequestPlan, Segment
from translane_server.translation.terms import MAX_TERMS_OF_SENTENCE
from translane_server.translation.tokenizer_pool import TokenizerPool
from translane_server.translation.translations import generated_tokens

_BEAMS = 4  # of a sentence that is decoded again
# How many more tokens a sentence may get that is decoded again than twice its result's, or its own if that runs on, and
# those of what it must have. A search that is forced to what the model does not want may run on, too.
_MORE_TOKENS = 16

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
Decode = Callable[[Sequence[Sentence]], Awaitable[Sequence[SentenceResult]]]

_Faults = tuple[int, int]
"""How many stand-ins, or names and numbers in their place, a hypothesis lacks or has twice; and how many numbers.

One that a default cuts off lacks one more: it runs on.
"""


@dataclass(slots=True)
class _Found:
    """The hypotheses of a sentence that its request gets, best first."""

    segment: Segment  # of the request
    decoded: Segment  # the segment, or what was decoded in its place
    hypotheses: Sequence[Hypothesis]
    faults: Sequence[_Faults]  # of each hypothesis
    timing: Timing

    def take(self, other: _Found) -> None:
        """Take what was decoded again, if the worst of its hypotheses, and then the second worst, lacks less."""
        self.timing = Timing(*map(operator.add, self.timing, other.timing))
        is_enough = len(other.hypotheses) >= len(self.hypotheses)
        if is_enough and sorted(other.faults, reverse=True) < sorted(self.faults, reverse=True):
            self.decoded, self.hypotheses, self.faults = other.decoded, other.hypotheses, other.faults


@dataclass
class SecondDecoding:
    """Chooses the results of a request's sentences, and decodes again what lacks a number or a stand-in.

    The `pool` looks at texts. Where a second decoding is refused or fails, the result stays, and its segment is not
    settled.
    """

    plan: RequestPlan
    decode: Decode
    pool: TokenizerPool
    caller: str
    generated: int = 0  # tokens of what was decoded again

    async def settled(self, segments: Sequence[Segment], results: Sequence[SentenceResult]) -> list[SentenceResult]:
        """Return the results of sentences, of which those that lack a number or a stand-in are decoded again.

        So are those that have a stand-in twice. The first time it is with beams that require both, and then, if it is
        for stand-ins, without these: `segments` are changed to what their results are of.
        """
        found = await self._read_results(segments, segments, results)
        for required in (self._with_phrases, self._without_stand_ins):
            size = sum(len(each.segment.ids) for each in found if any(map(any, each.faults)))
            read = partial(_each, required, found)
            again = {n: each for n, each in enumerate(await self.pool.build(size, read, self.caller)) if each}
            if not again:
                continue
            others = [found[number].segment for number in again]
            results = await self._again(others, [sentence for _, sentence in again.values()])
            if not results:
                break
            chosen = await self._read_results(others, [decoded for decoded, _ in again.values()], results)
            for number, new in zip(again, chosen, strict=True):
                found[number].take(new)
        for each in found:
            each.segment.become(each.decoded)
            each.segment.missing = each.faults[0][1]
        return [SentenceResult(tuple(each.hypotheses), each.timing) for each in found]

    async def continued(self, segment: Segment, result: SentenceResult) -> SentenceResult:
        """Return the result of a sentence that is sent already, but for its last token, with the stand-ins it lacks.

        Where the model does not write them in what is left, the result stays. Numbers that it lacks are counted. A
        sentence that lacked anything is not settled: it may be better where it is no stream's.
        """
        hypothesis = result.hypotheses[0]
        result = result._replace(hypotheses=(hypothesis,))
        segment.is_settled = not any(self._faults(segment, hypothesis))
        missing = {token for token in segment.stand_ins if token not in hypothesis.token_ids}
        forced, again = hypothesis.token_ids[:-1], self._required(segment) if missing else None
        length = again.options.max_length - len(forced) + len(again.forced_ids) if again else 0
        if again and length >= 1:
            most = len(forced) + sum(len(each.token_ids) for each in again.required_phrases) + _MORE_TOKENS
            options = replace(again.options, max_length=min(length, most), min_length=0)
            again = again._replace(options=options, forced_ids=forced, counted_ids=0, word_follows=False)
            for found in await self._again([segment], [again]):
                ended = [each for each in found.hypotheses if each.is_complete or not hypothesis.is_complete]
                right = [each for each in ended if missing.issubset(each.token_ids)]
                timing = Timing(*map(operator.add, result.timing, found.timing))
                result = SentenceResult(tuple(right[:1]) or result.hypotheses, timing)
        segment.missing = self._faults(segment, result.hypotheses[0])[1]
        return result

    async def _again(self, segments: Sequence[Segment], sentences: Sequence[Sentence]) -> Sequence[SentenceResult]:
        """Decode sentences of segments once more. Return nothing if there is no room for them, or if that fails."""
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
        """Return what the request gets of results, which are of the segments, or of what was `decoded` instead."""
        found = [*zip(segments, decoded, results, strict=True)]
        size = generated_tokens([result for _, each, result in found if each.has_to_keep])
        return await self.pool.build(size, partial(_each, self._best, found), self.caller)

    def _best(self, item: tuple[Segment, Segment, SentenceResult]) -> _Found:
        """Return as many hypotheses of a sentence as the request wants: those that lack the least."""
        segment, decoded, result = item
        wanted = self.plan.options.num_hypotheses or 1
        faults: list[_Faults] = []
        for hypothesis in result.hypotheses:
            faults.append(self._faults(decoded, hypothesis))
            if sum(not any(each) for each in faults) == wanted:  # nobody needs the others
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
        """Return a sentence with beams that write each stand-in once; None for several samples or alternatives."""
        plan, sentence = self.plan, self.plan.sentence(segment)
        options = sentence.options
        beams = min(_BEAMS, plan.most_beams)
        if beams < 2 or (options.num_hypotheses > 1 and options.beam_size == 1):
            return None
        beams = max(beams, options.beam_size)
        # with the space before it, if the vocabulary has spaces as pieces of their own
        symbols = [plan.spelling.phrase(plan.stand_ins[token]) for token in segment.stand_ins]
        phrases = [replace(symbol, once=True) for symbol in symbols if symbol]
        suppressed = (*options.suppressed_ids, *(token for token in plan.stand_ins if token not in segment.stand_ins))
        options = replace(options, beam_size=beams, num_hypotheses=beams, sampling=None, scores=True)
        options = replace(options, suppressed_ids=suppressed)
        return sentence._replace(options=options, required_phrases=(*sentence.required_phrases, *phrases))

    def _with_phrases(self, found: _Found) -> tuple[Segment, Sentence] | None:
        """Return what requires all that some of the hypotheses lack; None if none lacks anything."""
        plan, segment = self.plan, found.segment
        if not any(map(any, found.faults)) or not (again := self._required(segment)):
            return None
        languages = plan.source_language, plan.target_language
        numbers = [plan.spelling.phrase(written_for(number, *languages)) for number in segment.numbers]
        phrases = dict.fromkeys([*again.required_phrases, *(phrase for phrase in numbers if phrase)])
        required = tuple(phrases)[:MAX_TERMS_OF_SENTENCE]
        ended = [len(each.token_ids) for each in found.hypotheses if each.is_complete]
        longest = max(ended, default=len(segment.ids))
        length = 2 * longest + sum(len(each.token_ids) for each in required) + _MORE_TOKENS
        options = replace(
            again.options, max_length=max(again.options.min_length, min(again.options.max_length, length))
        )
        return segment, again._replace(options=options, required_phrases=required)

    def _without_stand_ins(self, found: _Found) -> tuple[Segment, Sentence] | None:
        """Return the sentence without stand-ins; None if each hypothesis has each of them once."""
        other = found.segment.otherwise
        return (other, self.plan.sentence(other)) if other and any(lacks for lacks, _ in found.faults) else None


def _each(call: Callable[[_Item], _Result], items: Sequence[_Item], budget: Budget) -> list[_Result]:
    found = []
    for item in items:
        budget.check()
        found.append(call(item))
    return found
