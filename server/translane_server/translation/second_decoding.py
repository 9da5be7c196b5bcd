"""Decodes sentences again whose translations lack what they must have."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace

from translane_server.core.errors import QueueFullError
from translane_server.engine.options import RequiredPhrase
from translane_server.engine.sequence import Hypothesis, Sentence, SentenceResult, Timing
from translane_server.text.numbers import missing_numbers, written_for
from translane_server.translation.plan import RequestPlan, Segment
from translane_server.translation.terms import MAX_TERMS_OF_SENTENCE

_BEAMS = 4  # of a sentence that is decoded again

Decode = Callable[[Sequence[Sentence]], Awaitable[Sequence[SentenceResult]]]


def _has_stand_ins(plan: RequestPlan, segment: Segment, hypothesis: Hypothesis) -> bool:
    """Whether the hypothesis has each stand-in of its source once, and no other one."""
    if not segment.stand_ins:
        return True
    written = Counter(token for token in hypothesis.token_ids if token in plan.stand_ins)
    return written == dict.fromkeys(segment.stand_ins, 1)


async def with_all_kept(
    plan: RequestPlan, segments: Sequence[Segment], results: Sequence[SentenceResult], decode: Decode
) -> list[SentenceResult]:
    """Return the results of sentences, of which those that lack a number or a stand-in are decoded again.

    So are those that have a stand-in twice. The first time it is with beams that require both, and then, if it is for
    stand-ins, without these: `segments` are changed to what was decoded last. Where the queue has no room, and where a
    number is missing again, the result stays.
    """
    found = [_chosen(plan, *each) for each in zip(segments, results, strict=True)]
    for require, is_good in ((_with_phrases, _is_complete), (_without_stand_ins, _has_stand_ins)):
        sentences = {
            number: sentence
            for number, (segment, result) in enumerate(zip(segments, found, strict=True))
            if not all(is_good(plan, segment, each) for each in result.hypotheses)
            and (sentence := require(plan, segment))
        }
        if not sentences:
            continue
        try:
            again = await decode(list(sentences.values()))
        except QueueFullError:
            break
        for number, result in zip(sentences, again, strict=True):
            if require is _without_stand_ins:
                segments[number].fall_back()
            segments[number].attempts += 1
            right = [each for each in result.hypotheses if is_good(plan, segments[number], each)]
            wanted = len(found[number].hypotheses)
            if len(right) >= wanted:
                found[number] = SentenceResult(tuple(right[:wanted]), _both(found[number].timing, result.timing))
    for segment, result in zip(segments, found, strict=True):
        segment.missing = len(_missing(plan, segment, result.hypotheses[0]))
    return found


def _chosen(plan: RequestPlan, segment: Segment, result: SentenceResult) -> SentenceResult:
    """Return the hypotheses that the request wants; if it wants one, the best one that has all numbers."""
    if not segment.numbers:
        return result
    hypotheses, wanted = result.hypotheses, plan.options.num_hypotheses or 1
    if wanted == 1:
        hypotheses = (next((each for each in hypotheses if _is_complete(plan, segment, each)), hypotheses[0]),)
    return result._replace(hypotheses=hypotheses[:wanted])


def _is_complete(plan: RequestPlan, segment: Segment, hypothesis: Hypothesis) -> bool:
    return _has_stand_ins(plan, segment, hypothesis) and not _missing(plan, segment, hypothesis)


def _missing(plan: RequestPlan, segment: Segment, hypothesis: Hypothesis) -> list[str]:
    if not segment.numbers:
        return []
    (text,) = plan.pair.tokenizer.decode([hypothesis.token_ids])
    return missing_numbers(segment.numbers, text)


async def continued(plan: RequestPlan, segment: Segment, result: SentenceResult, decode: Decode) -> SentenceResult:
    """Return the result of a sentence that is sent already, but for its last token, with the stand-ins that it lacks.

    Where the model does not write them in what is left, the result stays. Numbers that it lacks are counted.
    """
    found = await _with_all_stand_ins(plan, segment, result, decode)
    segment.missing = len(_missing(plan, segment, found.hypotheses[0]))
    return found


async def _with_all_stand_ins(
    plan: RequestPlan, segment: Segment, result: SentenceResult, decode: Decode
) -> SentenceResult:
    hypothesis = result.hypotheses[0]
    result = result._replace(hypotheses=(hypothesis,))
    missing = [token for token in segment.stand_ins if token not in hypothesis.token_ids]
    sentence = plan.sentence(segment)
    forced = hypothesis.token_ids[:-1]
    length = sentence.options.max_length - len(forced) + len(sentence.forced_ids)
    again = _required(plan, sentence, missing)
    if not missing or again is None or length < 1:
        return result
    options = replace(again.options, max_length=length, min_length=0)
    try:
        (found,) = await decode([again._replace(options=options, forced_ids=forced, counted_ids=0, word_follows=False)])
    except QueueFullError:
        return result
    segment.attempts += 1
    right = [each for each in found.hypotheses if not set(missing) - set(each.token_ids)]
    return SentenceResult(tuple(right[:1]) or result.hypotheses, _both(result.timing, found.timing))


def _both(first: Timing, second: Timing) -> Timing:
    return Timing(*map(operator.add, first, second))


def _required(plan: RequestPlan, sentence: Sentence, stand_ins: Iterable[int]) -> Sentence | None:
    """Return a sentence with beams that require stand-ins; None where it has several samples or alternatives."""
    options, beams = sentence.options, min(_BEAMS, plan.most_beams)
    if beams < 2 or (options.num_hypotheses > 1 and options.beam_size == 1):
        return None
    beams = max(beams, options.beam_size)
    surfaces = plan.pair.tokenizer.target_surfaces
    phrases = [RequiredPhrase(surfaces[token].strip(), (token,)) for token in stand_ins]
    options = replace(options, beam_size=beams, num_hypotheses=beams, sampling=None, scores=True)
    return sentence._replace(options=options, required_phrases=(*sentence.required_phrases, *phrases))


def _with_phrases(plan: RequestPlan, segment: Segment) -> Sentence | None:
    sentence = _required(plan, plan.sentence(segment), segment.stand_ins)
    if sentence is None:
        return None
    languages = plan.source_language, plan.target_language
    numbers = [plan.spelling.phrase(written_for(number, *languages)) for number in segment.numbers]
    phrases = dict.fromkeys([*sentence.required_phrases, *(phrase for phrase in numbers if phrase)])
    return sentence._replace(required_phrases=tuple(phrases)[:MAX_TERMS_OF_SENTENCE])


def _without_stand_ins(plan: RequestPlan, segment: Segment) -> Sentence | None:
    assert segment.otherwise
    return plan.sentence(segment.otherwise)
