"""Turns decoded sentences into the translations of texts."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, pairwise

from translane.results import AlignmentPoint, FinishReason, Hypothesis, Timing, Translation, Treatment
from translane_server.core.budget import UNLIMITED, Budget
from translane_server.core.quality import NOTHING_GENERATED, combined_quality, estimated_quality
from translane_server.engine import sequence as decoded
from translane_server.engine.sequence import AlignedToken, CommittedTokens, Sentence, SentenceResult
from translane_server.text.characters import spaces_words
from translane_server.text.placeholders import Span
from translane_server.text.tag_projection import AlignedText, place
from translane_server.translation.plan import PreparedText, RequestPlan, Segment
from translane_server.translation.terms import most_reports

# A longer part of the source replaces no token [characters]. Each of many tokens may be aligned with the same part.
_LONGEST = 1024

_ENDED, _CUT_OFF = FinishReason.END_OF_SENTENCE, FinishReason.MAX_LENGTH

_Utf8Decoder = codecs.getincrementaldecoder("utf-8")

_Tokens = decoded.Hypothesis | CommittedTokens
_Phases = Timing | decoded.Timing
_slowest: Callable[[list[float]], float] = partial(max, default=0.0)

# The number of a hypothesis, and the combination of hypotheses before it.
_Chain = tuple[int, "_Chain | None"]


@dataclass(slots=True)
class PreparedRequest:
    """A request as sentences to decode, and the plan by which their results become translations."""

    plan: RequestPlan
    texts: Sequence[PreparedText]
    sentences: Sequence[Sentence]
    has_to_keep: bool  # whether any segment has; see `Segment`

    @property
    def unsettled(self) -> set[int]:
        """The numbers of the texts whose translations another request may get otherwise; see `Segment`."""
        return {
            number for number, text in enumerate(self.texts) if not all(segment.is_settled for segment in text.segments)
        }

    def translations(self, results: Sequence[SentenceResult], budget: Budget = UNLIMITED) -> list[Translation]:
        """Return the translation of each text, by the result of each sentence. Raises WorkEndedError."""
        plan, remaining = self.plan, iter(results)
        whole = []
        for text in self.texts:
            budget.check()
            translations = [translation_of(plan, segment, next(remaining)) for segment in text.segments]
            is_plain = translations and text.gaps is None and not (plan.terms or plan.options.check_numbers)
            whole.append(translations[0] if is_plain else self.translation(text, translations))
        return whole

    def translation(self, text: PreparedText, translations: Sequence[Translation]) -> Translation:
        """Return the translation of a text. `translations` are those of its sentences."""
        plan = self.plan
        if text.gaps is not None:
            whole = merged(text, translations, plan)
        else:
            whole = translations[0] if translations else Translation((Hypothesis("", None, _ENDED),), 0)
        if not translations:
            nothing = replace(
                whole.hypotheses[0],
                score=0.0 if plan.returns_score else None,  # the sum of no log-probabilities
                quality=NOTHING_GENERATED if plan.options.return_quality else None,
            )
            whole = replace(whole, hypotheses=(nothing,))
        stand_ins = sum(len(segment.stand_ins) for segment in text.segments)
        decoded_again = sum(segment.attempts > 1 for segment in text.segments)
        missing = sum(segment.missing for segment in text.segments)
        if stand_ins or decoded_again or missing:
            treatment = replace(whole.treatment or Treatment(), stand_ins=stand_ins, decoded_again=decoded_again)
            whole = replace(whole, treatment=replace(treatment, missing_numbers=missing))
        if plan.terms:
            sentences = [(segment.terms, each.text) for segment, each in zip(text.segments, translations, strict=True)]
            if reports := plan.terms.reports(sentences, most_reports(len(self.texts)), text.written):
                whole = replace(whole, treatment=replace(whole.treatment or Treatment(), terms=tuple(reports)))
        return whole


def generated_tokens(results: Iterable[SentenceResult]) -> int:
    """Return how many tokens the hypotheses have, with those that end them."""
    return sum([len(each.token_ids) + each.is_complete for result in results for each in result.hypotheses])


def translation_of(plan: RequestPlan, segment: Segment, result: SentenceResult) -> Translation:
    """Return the translation of a sentence."""
    options = plan.options
    pieces: Sequence[str] = ()
    if options.return_tokens or options.return_alignment:
        pieces = plan.pair.tokenizer.source_pieces(segment.ids)
    hypotheses = tuple([_hypothesis(plan, segment, each) for each in result.hypotheses])
    return Translation(hypotheses, len(segment.ids), source_pieces=tuple(pieces))


def _hypothesis(plan: RequestPlan, segment: Segment, hypothesis: decoded.Hypothesis) -> Hypothesis:
    options, tokenizer = plan.options, plan.pair.tokenizer
    replaced: Sequence[Mapping[int, str]] = ()
    if options.replace_unknowns or plan.stand_ins:
        replaced = [_replaced(plan, segment, hypothesis)]
    (text,) = tokenizer.decode([hypothesis.token_ids], replaced)
    if segment.marked is not None:
        text = _with_marks(plan, segment, hypothesis, text)
    if missing := [kept for token, kept in segment.stand_ins.items() if token not in hypothesis.token_ids]:
        text = " ".join([text, *missing])
    plain = Hypothesis(
        text, hypothesis.score if plan.returns_score else None, _ENDED if hypothesis.is_complete else _CUT_OFF
    )
    if not (options.return_tokens or options.return_token_scores or options.return_alignment or options.return_quality):
        return plain
    hidden = len(plan.pair.forced_ids)  # tokens that name a language
    tokens: Sequence[str] = ()
    if options.return_tokens:
        end = (plan.special_ids.eos,) if hypothesis.is_complete else ()
        tokens = tokenizer.target_pieces([*hypothesis.token_ids[hidden:], *end])
    points = hypothesis.alignment[hidden:] if options.return_alignment else ()
    quality = None
    if options.return_quality:
        quality = estimated_quality(hypothesis.token_log_probs[len(plan.forced_ids) :], plan.calibration)
    return replace(
        plain,
        tokens=tuple(tokens),
        token_log_probs=hypothesis.token_log_probs[hidden:] if options.return_token_scores else (),
        alignment=tuple([AlignmentPoint(each.source_token, i, each.weight) for i, each in enumerate(points)]),
        quality=quality,
    )


def _with_marks(plan: RequestPlan, segment: Segment, hypothesis: decoded.Hypothesis, text: str) -> str:
    """Return the translation `text` with the marks of its source."""
    assert segment.marked is not None
    text = segment.escape(text)
    if not segment.marked.marks:
        return text
    parts = surfaces(plan, segment, hypothesis)
    of_source = source_spans(plan, segment) if hypothesis.alignment else ()
    target = aligned_text(text, parts, segment.text, of_source, hypothesis.alignment)
    if segment.stand_ins:
        whole = {number for number, token in enumerate(hypothesis.token_ids) if token in segment.stand_ins}
        target = replace(target, whole=whole)
    return place(segment.marked, target, spaced=spaces_words(plan.target_language))


def surfaces(plan: RequestPlan, segment: Segment, tokens: _Tokens, before: Container[int] = ()) -> list[bytes]:
    """Return what each of `tokens` adds to the text of a translation of `segment`, as UTF-8.

    `before` has the tokens that the translation has before these.
    """
    known = plan.pair.tokenizer.target_surfaces
    parts = [known[token] for token in tokens.token_ids]
    if plan.options.replace_unknowns or plan.stand_ins:
        for position, text in _replaced(plan, segment, tokens, before).items():
            parts[position] = text.encode()
    return parts


def _replaced(plan: RequestPlan, segment: Segment, tokens: _Tokens, before: Container[int] = ()) -> dict[int, str]:
    """Return what is written in the place of tokens, by their positions: of unknown ones, and of stand-ins.

    What a stand-in stands for is written once. A stand-in that comes again, or that the source has not, is left out.
    """
    replaced: dict[int, str] = {}
    if plan.options.replace_unknowns:
        replaced.update(_unknowns(plan, segment, tokens.token_ids, tokens.alignment))
    if plan.stand_ins:
        written = set()
        for position, token in enumerate(tokens.token_ids):
            if token in plan.stand_ins:
                is_first = token in segment.stand_ins and token not in written and token not in before
                space = " " if plan.pair.tokenizer.target_surfaces[token].startswith(b" ") else ""
                replaced[position] = space + segment.stand_ins[token] if is_first else ""
                written.add(token)
    return replaced


def source_spans(plan: RequestPlan, segment: Segment) -> Sequence[Span | None]:
    """Return the part of the text that each token of `segment` stands for. It is found once for each segment."""
    if segment.spans is None:
        segment.spans = plan.pair.source_spans(segment.text)
    return segment.spans


def _unknowns(
    plan: RequestPlan, segment: Segment, token_ids: Sequence[int], alignment: Sequence[AlignedToken]
) -> Mapping[int, str]:
    """Return the replacement of each unknown token, by its position in `token_ids`."""
    unknown = plan.special_ids.unk
    if unknown not in token_ids:
        return {}
    found = replacements(token_ids, alignment, unknown, segment.text, source_spans(plan, segment))
    surface = plan.pair.tokenizer.target_surfaces[unknown]
    # The unknown token of a vocabulary of words is a whole word, with the space before it.
    is_word = surface.startswith(b" ") and not surface.endswith(b" ")
    return {position: f" {text}" for position, text in found.items()} if is_word else found


def merged(text: PreparedText, translations: Sequence[Translation], plan: RequestPlan) -> Translation:
    """Merge the translations of a text's sentences into one.

    The score is the sum of the sentences' scores, if they have scores. The estimated quality is the mean of the
    sentences' estimates, by their source tokens. Tokens are concatenated, and alignments refer to positions in the
    concatenated tokens. Hypotheses are combined by their scores: the result has the best combinations. Hypotheses
    without an order are combined one by one: the first ones, then the second ones, and so on.
    """
    counts = [len(each.hypotheses) for each in translations]
    if max(counts, default=1) == 1:
        combinations = [(0,) * len(counts)]
    elif plan.decoding and (plan.decoding.sampling or plan.decoding.alternatives):
        combinations = [(number,) * len(counts) for number in range(min(counts))]
    else:
        scores = [[one.score or 0.0 for one in each.hypotheses] for each in translations]
        combinations = best_combinations(scores, max(counts))
    return Translation(
        tuple([_merged(text, translations, numbers, plan.target_language) for numbers in combinations]),
        source_tokens=sum(each.source_tokens for each in translations),
        source_pieces=tuple(piece for each in translations for piece in each.source_pieces),
        treatment=text.treatment,
    )


def _merged(
    text: PreparedText, translations: Sequence[Translation], numbers: Sequence[int], target_language: str
) -> Hypothesis:
    """Return the hypothesis of the text that has the hypothesis `numbers[i]` of sentence i."""
    chosen = [each.hypotheses[number] for each, number in zip(translations, numbers, strict=True)]
    lengths = [each.source_tokens for each in translations]
    finish_reason = _ENDED
    source_tokens = target_tokens = 0
    alignment = []
    for hypothesis, length in zip(chosen, lengths, strict=True):
        alignment += [
            AlignmentPoint(source_tokens + point.source_token, target_tokens + point.target_token, point.weight)
            for point in hypothesis.alignment
        ]
        ended = hypothesis.finish_reason == _ENDED
        if not ended:
            finish_reason = hypothesis.finish_reason
        # Tokens are there only if the request asks for them. Every token but the end-of-sentence token is aligned.
        target_tokens += len(hypothesis.tokens) or len(hypothesis.alignment) + ended
        source_tokens += length
    quality = None
    if any(each.quality is not None for each in chosen):
        quality = combined_quality((each.quality or 0.0, length) for each, length in zip(chosen, lengths, strict=True))
    scores = [each.score for each in chosen if each.score is not None]  # those with terms may have some, others none
    return Hypothesis(
        text.join([each.text for each in chosen], target_language),
        sum(scores) if scores and len(scores) == len(chosen) else None,
        finish_reason,
        tuple([token for each in chosen for token in each.tokens]),
        tuple([log_prob for each in chosen for log_prob in each.token_log_probs]),
        tuple(alignment),
        quality,
    )


def best_combinations(scores: Sequence[Sequence[float]], most: int) -> list[tuple[int, ...]]:
    """Return the combinations of one hypothesis of each sentence, those with the highest sum of scores first.

    A combination of n sentences is n numbers of hypotheses, whose scores come with the highest first. The time grows
    with the number of sentences times `most`.
    """
    best: list[tuple[float, _Chain | None]] = [(0.0, None)]
    for of_sentence in scores:
        # Whatever comes before both numbers is better, so the product of the ranks is at most `most`.
        sums = [
            (-total - score, number, place)
            for place, (total, _) in enumerate(best)
            for number, score in enumerate(of_sentence[: most // (place + 1)])
        ]
        best = [(-cost, (number, best[place][1])) for cost, number, place in sorted(sums)[:most]]
    return [_numbers(chain) for _, chain in best]


def _numbers(chain: _Chain | None) -> tuple[int, ...]:
    numbers = []
    while chain is not None:
        number, chain = chain
        numbers.append(number)
    return tuple(reversed(numbers))


def request_timing(
    phases: Sequence[_Phases], total: float, cached_texts: int = 0, combine: Callable[[list[float]], float] = _slowest
) -> Timing:
    """Return the time of the slowest of sentences or parts in each phase, and the `total` time. All are in seconds.

    For steps one after the other, `combine` is `sum`.
    """
    return Timing(
        combine([each.queue for each in phases]),
        combine([each.encode for each in phases]),
        combine([each.decode for each in phases]),
        total,
        cached_texts,
    )


def aligned_text(
    text: str,
    surfaces: Sequence[bytes],
    source: str,
    source_spans: Sequence[Span | None],
    alignment: Sequence[AlignedToken],
) -> AlignedText:
    """Return a translation with the part of the source text that each of its tokens comes from.

    `surfaces` are what each of T tokens adds to the translation, as UTF-8, and `source_spans` the part of the source
    that each of S tokens stands for. Without the `alignment` of T tokens, a token comes from the part of the source at
    the same share of its length.
    """
    decoder = _Utf8Decoder("replace")
    pieces = [decoder.decode(surface) for surface in surfaces]
    if pieces:
        pieces[-1] += decoder.decode(b"", final=True)
    if not alignment:
        return AlignedText(text, pieces, _proportional(pieces, len(source)))
    return AlignedText(text, pieces, [source_spans[each.source_token] for each in alignment])


def _proportional(pieces: Sequence[str], length: int) -> list[Span | None]:
    """Return parts of a source of `length` characters, in the proportion of the pieces' lengths."""
    ends = list(accumulate(map(len, pieces), initial=0))
    whole = max(1, ends[-1])
    return [
        (one * length // whole, max(one * length // whole + 1, other * length // whole)) if length else None
        for one, other in pairwise(ends)
    ]


def replacements(
    token_ids: Sequence[int],
    alignment: Sequence[AlignedToken],
    unknown: int,
    source: str,
    source_spans: Sequence[Span | None],
) -> dict[int, str]:
    """Return the source text that each unknown token is aligned to, by the token's position. For spans see above.

    The source text has no white space around it. A token that is aligned to nothing visible has no replacement. A token
    that is aligned to more than 1024 characters has none either.
    """
    found = {
        position: source[slice(*span)].strip()
        for position, (token, aligned) in enumerate(zip(token_ids, alignment, strict=True))
        if token == unknown and (span := source_spans[aligned.source_token])
    }
    return {position: written for position, written in found.items() if 0 < len(written) <= _LONGEST}
