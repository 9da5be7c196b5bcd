"""Merges the translations of a text's sentences."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from translane.results import AlignmentPoint, FinishReason, Hypothesis, Translation, Treatment
from translane_server.core.quality_estimate import combined_quality
from translane_server.text.characters import target_gaps
from translane_server.text.markup.document import Document

# The number of a hypothesis, and the combination of hypotheses before it.
_Chain = tuple[int, "_Chain | None"]


@dataclass(frozen=True, slots=True)
class CutText:
    """A text as sentences, and what stands between them.

    Attributes:
        gaps: for each block of the text, which has n sentences, the n + 1 texts before, between and after them.
        document: what the translations of the blocks are put into; None for plain text, which is one block.
        treatment: what was done with the text; None if nothing was.
    """

    gaps: Sequence[Sequence[str]]
    document: Document | None = None
    treatment: Treatment | None = None

    def join(self, translations: Sequence[str], target_language: str) -> str:
        """Join the sentences' translations to the translation of the text."""
        blocks = []
        done = 0
        for gaps in self.gaps:
            first, *others = target_gaps(gaps, target_language)
            texts = translations[done : done + len(others)]
            done += len(others)
            blocks.append(first + "".join(text + gap for text, gap in zip(texts, others, strict=True)))
        return self.document.render(blocks) if self.document else "".join(blocks)


def merge_translations(
    text: CutText, translations: Sequence[Translation], target_language: str, *, ranked: bool = True
) -> Translation:
    """Merge the translations of a text's sentences into one.

    The score is the sum of the sentences' scores, if they have scores. The estimated quality is the mean of the
    sentences' estimates, by their source tokens. Tokens are concatenated, and alignments refer to
    positions in the concatenated tokens.

    Args:
        text: the text.
        translations: the sentences' translations.
        target_language: a BCP-47 tag.
        ranked: whether hypotheses are combined by their scores: the result has the best combinations. Otherwise, the
            first hypotheses are combined, then the second ones, and so on.
    """
    return Translation(
        tuple(
            _merged(text, translations, numbers, target_language)
            for numbers in _combinations(translations, ranked=ranked)
        ),
        source_tokens=sum(each.source_tokens for each in translations),
        source_pieces=tuple(piece for each in translations for piece in each.source_pieces),
        treatment=text.treatment,
    )


def _combinations(translations: Sequence[Translation], *, ranked: bool) -> list[tuple[int, ...]]:
    """Return which hypothesis of each sentence is taken for each hypothesis of the text."""
    counts = [len(each.hypotheses) for each in translations]
    if max(counts, default=1) == 1:
        return [(0,) * len(counts)]
    if not ranked:
        return [(number,) * len(counts) for number in range(min(counts))]
    return best_combinations([[one.score or 0.0 for one in each.hypotheses] for each in translations], max(counts))


def _merged(
    text: CutText, translations: Sequence[Translation], numbers: Sequence[int], target_language: str
) -> Hypothesis:
    """Return the hypothesis of the text that has the hypothesis `numbers[i]` of sentence i."""
    finish_reason = FinishReason.END_OF_SENTENCE
    score, source_tokens, target_tokens, texts = 0.0, 0, 0, []
    tokens: list[str] = []
    log_probs: list[float] = []
    alignment = []
    has_score = bool(translations)  # sentences with terms may have scores where others have none
    for translation, number in zip(translations, numbers, strict=True):
        hypothesis = translation.hypotheses[number]
        texts.append(hypothesis.text)
        has_score = has_score and hypothesis.score is not None
        score += hypothesis.score or 0.0
        tokens += hypothesis.tokens
        log_probs += hypothesis.token_log_probs
        alignment += [
            AlignmentPoint(source_tokens + point.source_token, target_tokens + point.target_token, point.weight)
            for point in hypothesis.alignment
        ]
        ended = hypothesis.finish_reason == FinishReason.END_OF_SENTENCE
        if not ended:
            finish_reason = hypothesis.finish_reason
        # Tokens are there only if the request asks for them. Every token but the end-of-sentence token is aligned.
        target_tokens += len(hypothesis.tokens) or len(hypothesis.alignment) + ended
        source_tokens += translation.source_tokens
    chosen = [each.hypotheses[number] for each, number in zip(translations, numbers, strict=True)]
    quality = None
    if any(each.quality is not None for each in chosen):
        quality = combined_quality(
            (each.quality or 0.0, translation.source_tokens)
            for each, translation in zip(chosen, translations, strict=True)
        )
    return Hypothesis(
        text.join(texts, target_language),
        score if has_score else None,
        finish_reason,
        tuple(tokens),
        tuple(log_probs),
        tuple(alignment),
        quality,
    )


def best_combinations(scores: Sequence[Sequence[float]], most: int) -> list[tuple[int, ...]]:
    """Return the combinations of one hypothesis of each sentence, those with the highest sum of scores first.

    The time grows with the number of sentences times `most`.

    Args:
        scores: the scores of each sentence's hypotheses, highest first; n lists.
        most: how many combinations are returned, if there are as many.

    Returns:
        Combinations of n numbers of hypotheses.
    """
    best: list[tuple[float, _Chain | None]] = [(0.0, None)]
    for of_sentence in scores:
        # Both lists have their best first, so the best sum that is left is one of those beside the sums that are taken.
        waiting = [(-best[0][0] - of_sentence[0], 0, 0)]
        extended: list[tuple[float, _Chain | None]] = []
        while waiting and len(extended) < most:
            cost, hypothesis, before = heapq.heappop(waiting)
            extended.append((-cost, (hypothesis, best[before][1])))
            if before + 1 < len(best):
                heapq.heappush(waiting, (-best[before + 1][0] - of_sentence[hypothesis], hypothesis, before + 1))
            if before == 0 and hypothesis + 1 < len(of_sentence):
                heapq.heappush(waiting, (-best[0][0] - of_sentence[hypothesis + 1], hypothesis + 1, 0))
        best = extended
    return [_numbers(chain) for _, chain in best]


def _numbers(chain: _Chain | None) -> tuple[int, ...]:
    numbers = []
    while chain is not None:
        number, chain = chain
        numbers.append(number)
    return tuple(reversed(numbers))
