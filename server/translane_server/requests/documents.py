"""Texts of many sentences in the protocol's terms: checks their options, cuts them, and merges their translations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from translane.v1 import translation_pb2 as pb
from translane_server.budget import UNLIMITED, Budget
from translane_server.errors import FieldViolation, InvalidRequestError
from translane_server.quality_estimate import combined_quality
from translane_server.text.splitting import (
    Encode,
    LongCharacterError,
    SplitLimits,
    SplitText,
    TooManySentencesError,
    split_text,
)


def check_split(options: pb.DecodingOptions) -> list[FieldViolation]:
    """Return the options that cannot be combined with split_sentences, because they are for one sentence."""
    if not options.split_sentences:
        return []
    refused = {
        "num_hypotheses": options.num_hypotheses > 1,
        "return_alternatives": options.return_alternatives,
        "target_prefix": bool(options.target_prefix),
    }
    return [
        FieldViolation(f"options.{name}", "cannot be combined with split_sentences")
        for name, present in refused.items()
        if present
    ]


def split_texts(
    texts: Mapping[str, str], language: str, encode: Encode, limits: SplitLimits, budget: Budget = UNLIMITED
) -> list[SplitText]:
    """Cut texts into sentences; see `split_text`.

    Args:
        texts: texts by their fields, which errors name.
        language: a BCP-47 tag.
        encode: returns the tokens of texts.
        limits: limits of the sentences; the number of sentences is that of all texts together.
        budget: is checked between the pieces of the work.

    Raises:
        InvalidRequestError: the texts have more sentences, or a character has more tokens.
    """
    found: list[SplitText] = []
    remaining = limits.sentences
    for field, text in texts.items():
        try:
            split = split_text(text, language, encode, replace(limits, sentences=remaining), budget)
        except TooManySentencesError:
            message = f"has too many sentences, at most {limits.sentences} are accepted in a request"
            raise InvalidRequestError(FieldViolation(field, message)) from None
        except LongCharacterError as error:
            message = f"has a character of {error.length} code points, at most {limits.characters} are accepted"
            raise InvalidRequestError(FieldViolation(field, message)) from None
        if (most := max(map(len, split.source_ids), default=0)) > limits.tokens:
            message = f"has a character of {most} tokens, at most {limits.tokens} are accepted"
            raise InvalidRequestError(FieldViolation(field, message))
        remaining -= len(split.sentences)
        found.append(split)
    return found


def merge_translations(text: SplitText, translations: Sequence[pb.Translation], target_language: str) -> pb.Translation:
    """Merge the translations of a text's sentences into one. Each has one hypothesis.

    The score is the sum of the sentences' scores, if they have scores. The estimated quality is the mean of the
    sentences' estimates, by their source tokens. Tokens are concatenated, and alignments refer to
    positions in the concatenated tokens.
    """
    merged = pb.Hypothesis(finish_reason=pb.FINISH_REASON_END_OF_SENTENCE)
    whole = pb.Translation()
    score, target_tokens, texts = 0.0, 0, []
    for translation in translations:
        (hypothesis,) = translation.hypotheses
        texts.append(hypothesis.text)
        score += hypothesis.score
        merged.tokens.extend(hypothesis.tokens)
        merged.token_log_probs.extend(hypothesis.token_log_probs)
        for point in hypothesis.alignment.points:
            merged.alignment.points.add(
                source_token=whole.source_tokens + point.source_token,
                target_token=target_tokens + point.target_token,
                weight=point.weight,
            )
        ended = hypothesis.finish_reason == pb.FINISH_REASON_END_OF_SENTENCE
        if not ended:
            merged.finish_reason = hypothesis.finish_reason
        # Tokens are there only if the request asks for them. Every token but the end-of-sentence token is aligned.
        target_tokens += len(hypothesis.tokens) or len(hypothesis.alignment.points) + ended
        whole.source_tokens += translation.source_tokens
        whole.source_pieces.extend(translation.source_pieces)
    merged.text = text.join(texts, target_language)
    if any(hypothesis.HasField("score") for translation in translations for hypothesis in translation.hypotheses):
        merged.score = score
    if any(translation.hypotheses[0].HasField("quality") for translation in translations):
        merged.quality = combined_quality((each.hypotheses[0].quality, each.source_tokens) for each in translations)
    whole.hypotheses.append(merged)
    return whole
