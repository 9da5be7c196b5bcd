"""Merges the translations of a text's sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from translane.v1 import translation_pb2 as pb
from translane_server.quality_estimate import combined_quality
from translane_server.requests.combinations import best_combinations
from translane_server.text.markup.document import Document
from translane_server.text.spacing import target_gaps


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
    treatment: pb.Treatment | None = None

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
    text: CutText, translations: Sequence[pb.Translation], target_language: str, *, ranked: bool = True
) -> pb.Translation:
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
    whole = pb.Translation(source_tokens=sum(each.source_tokens for each in translations))
    for each in translations:
        whole.source_pieces.extend(each.source_pieces)
    whole.hypotheses.extend(
        _merged(text, translations, numbers, target_language) for numbers in _combinations(translations, ranked=ranked)
    )
    if text.treatment:
        whole.treatment.CopyFrom(text.treatment)
    return whole


def _combinations(translations: Sequence[pb.Translation], *, ranked: bool) -> list[tuple[int, ...]]:
    """Return which hypothesis of each sentence is taken for each hypothesis of the text."""
    counts = [len(each.hypotheses) for each in translations]
    if max(counts, default=1) == 1:
        return [(0,) * len(counts)]
    if not ranked:
        return [(number,) * len(counts) for number in range(min(counts))]
    return best_combinations([[one.score for one in each.hypotheses] for each in translations], max(counts))


def _merged(
    text: CutText, translations: Sequence[pb.Translation], numbers: Sequence[int], target_language: str
) -> pb.Hypothesis:
    """Return the hypothesis of the text that has the hypothesis `numbers[i]` of sentence i."""
    merged = pb.Hypothesis(finish_reason=pb.FINISH_REASON_END_OF_SENTENCE)
    score, source_tokens, target_tokens, texts = 0.0, 0, 0, []
    has_score = bool(translations)  # sentences with terms may have scores where others have none
    for translation, number in zip(translations, numbers, strict=True):
        hypothesis = translation.hypotheses[number]
        texts.append(hypothesis.text)
        score += hypothesis.score
        has_score = has_score and hypothesis.HasField("score")
        merged.tokens.extend(hypothesis.tokens)
        merged.token_log_probs.extend(hypothesis.token_log_probs)
        for point in hypothesis.alignment.points:
            merged.alignment.points.add(
                source_token=source_tokens + point.source_token,
                target_token=target_tokens + point.target_token,
                weight=point.weight,
            )
        ended = hypothesis.finish_reason == pb.FINISH_REASON_END_OF_SENTENCE
        if not ended:
            merged.finish_reason = hypothesis.finish_reason
        # Tokens are there only if the request asks for them. Every token but the end-of-sentence token is aligned.
        target_tokens += len(hypothesis.tokens) or len(hypothesis.alignment.points) + ended
        source_tokens += translation.source_tokens
    merged.text = text.join(texts, target_language)
    if has_score:
        merged.score = score
    chosen = [each.hypotheses[number] for each, number in zip(translations, numbers, strict=True)]
    if any(each.HasField("quality") for each in chosen):
        merged.quality = combined_quality(
            (each.quality, translation.source_tokens) for each, translation in zip(chosen, translations, strict=True)
        )
    return merged
