"""Turns decoded sentences into translations."""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

from translane.results import AlignmentPoint, FinishReason, Hypothesis, Timing, Translation
from translane_server.bundle.manifest import SpecialIds
from translane_server.core.quality_estimate import NOTHING_GENERATED, UNCALIBRATED, Calibration, estimated_quality
from translane_server.engine import sequence as decoded
from translane_server.engine.sequence import AlignedToken, CommittedTokens, SentenceResult
from translane_server.text.tag_projection import AlignedText, place
from translane_server.text.unknown_parts import token_spans
from translane_server.translation.languages import LanguagePair
from translane_server.translation.options import ResolvedOptions, Returned
from translane_server.translation.segmentation import Segment

# A longer part of the source replaces no token [characters]. Each of many tokens may be aligned with the same part.
_LONGEST = 1024

_ENDED, _CUT_OFF = FinishReason.END_OF_SENTENCE, FinishReason.MAX_LENGTH

_Utf8Decoder = codecs.getincrementaldecoder("utf-8")


class TranslationBuilder:
    """Builds translations from decoded sentences.

    Args:
        pair: the language pair, whose tokenizer decodes tokens.
        special_ids: the model's special ids.
        resolved: the options of the request.
        calibration: of the estimated quality.
        spaced: whether the target language writes spaces between words.
    """

    def __init__(
        self,
        pair: LanguagePair,
        special_ids: SpecialIds,
        resolved: ResolvedOptions,
        calibration: Calibration = UNCALIBRATED,
        *,
        spaced: bool = True,
    ) -> None:
        self._pair = pair
        self._tokenizer = pair.tokenizer
        self._ids = special_ids
        self.resolved = resolved
        self._returned = returned = resolved.returned
        self._has_details = returned.tokens or returned.token_scores or returned.alignment or returned.quality
        self._spaced = spaced
        self._calibration = calibration

    def translation(self, source: Segment, result: SentenceResult) -> Translation:
        """Return the translation of a sentence."""
        pieces = self._returned.tokens or self._returned.alignment
        return Translation(
            tuple([self._hypothesis(source, each) for each in result.hypotheses]),
            len(source.ids),
            source_pieces=tuple(self._tokenizer.source_pieces(source.ids)) if pieces else (),
        )

    def _hypothesis(self, source: Segment, hypothesis: decoded.Hypothesis) -> Hypothesis:
        ended = hypothesis.is_complete
        plain = Hypothesis(
            self._text(source, hypothesis),
            hypothesis.score,
            _ENDED if ended else _CUT_OFF,
        )
        return self._detailed(plain, hypothesis) if self._has_details else plain

    def _detailed(self, plain: Hypothesis, hypothesis: decoded.Hypothesis) -> Hypothesis:
        """Return a hypothesis with all that the request asks for."""
        returned, hidden = self._returned, self.resolved.language_tokens
        quality = None
        if returned.quality:
            generated = hypothesis.token_log_probs[len(self.resolved.forced_ids) :]
            quality = estimated_quality(generated, self._calibration)
        pieces = self._tokenizer.target_pieces(self._with_end(hypothesis)[hidden:]) if returned.tokens else ()
        return replace(
            plain,
            score=None if returned.quality and not returned.score else plain.score,
            tokens=tuple(pieces),
            token_log_probs=tuple(hypothesis.token_log_probs[hidden:]) if returned.token_scores else (),
            alignment=tuple(
                AlignmentPoint(each.source_token, position, each.weight)
                for position, each in enumerate(hypothesis.alignment[hidden:])
            )
            if returned.alignment
            else (),
            quality=quality,
        )

    def surfaces(self, source: Segment, tokens: CommittedTokens) -> list[bytes]:
        """Return what each of `tokens` adds to the text of a translation of `source`, as UTF-8."""
        known = self._tokenizer.target_surfaces
        parts = [known[token] for token in tokens.token_ids]
        for position, text in self._unknowns(source, tokens.token_ids, tokens.alignment).items():
            parts[position] = text.encode()
        return parts

    def source_surfaces(self, source: Segment) -> Sequence[str]:
        """Return the part of the text that each token of `source` stands for. It is found once for each source."""
        if source.surfaces is None:
            source.surfaces = self._pair.source_surfaces(source.text)
        return source.surfaces

    def _text(self, source: Segment, hypothesis: decoded.Hypothesis) -> str:
        unknowns: Sequence[Mapping[int, str]] = ()
        if self.resolved.replace_unknowns:
            unknowns = [self._unknowns(source, hypothesis.token_ids, hypothesis.alignment)]
        text = self._tokenizer.decode([hypothesis.token_ids], unknowns)[0]
        return text if source.marked is None else self._with_marks(source, hypothesis, text)

    def _with_marks(self, source: Segment, hypothesis: decoded.Hypothesis, text: str) -> str:
        """Return the translation `text` with the marks of its source."""
        assert source.marked is not None
        if not source.marked.marks:
            return source.escape(text)
        surfaces = self.surfaces(source, CommittedTokens(hypothesis.token_ids, hypothesis.alignment))
        source_surfaces = self.source_surfaces(source) if hypothesis.alignment else ()
        target = aligned_text(text, surfaces, source.text, source_surfaces, hypothesis.alignment)
        return place(source.marked, target, spaced=self._spaced, escape=source.escape)

    def _unknowns(
        self, source: Segment, token_ids: Sequence[int], alignment: Sequence[AlignedToken]
    ) -> Mapping[int, str]:
        """Return the replacement of each unknown token, by its position in `token_ids`."""
        unknown = self._ids.unk
        if not self.resolved.replace_unknowns or unknown not in token_ids:
            return {}
        found = replacements(token_ids, alignment, unknown, self.source_surfaces(source))
        surface = self._tokenizer.target_surfaces[unknown]
        # The unknown token of a vocabulary of words is a whole word, with the space before it.
        is_word = surface.startswith(b" ") and not surface.endswith(b" ")
        return {position: f" {text}" for position, text in found.items()} if is_word else found

    def _with_end(self, hypothesis: decoded.Hypothesis) -> tuple[int, ...]:
        return (*hypothesis.token_ids, self._ids.eos) if hypothesis.is_complete else hypothesis.token_ids


def empty_translation(returned: Returned) -> Translation:
    """Return the translation of a text without tokens, with the score and the estimated quality that are asked for."""
    return Translation((rated_nothing(Hypothesis("", None, FinishReason.END_OF_SENTENCE), returned),), 0)


def rated_nothing(hypothesis: Hypothesis, returned: Returned) -> Hypothesis:
    """Return the hypothesis of a text without tokens with the score and the quality that `returned` asks for."""
    return replace(
        hypothesis,
        score=0.0 if returned.score else hypothesis.score,  # the sum of no log-probabilities
        quality=NOTHING_GENERATED if returned.quality else hypothesis.quality,
    )


def request_timing(results: Sequence[SentenceResult], total: float, cached_texts: int = 0) -> Timing:
    """Return the time of the slowest sentence in each phase, and the `total` time. All times are in seconds."""
    queue = encode = decode = 0.0
    for result in results:
        phases = result.timing
        queue, encode, decode = max(queue, phases.queue), max(encode, phases.encode), max(decode, phases.decode)
    return Timing(queue, encode, decode, total, cached_texts)


def aligned_text(
    text: str,
    surfaces: Sequence[bytes],
    source: str,
    source_surfaces: Sequence[str],
    alignment: Sequence[AlignedToken],
) -> AlignedText:
    """Return a translation with the part of the source text that each of its tokens comes from.

    Args:
        text: the translation.
        surfaces: what each of T tokens adds to the text, as UTF-8.
        source: the source text.
        source_surfaces: the part of the source text that each of S tokens stands for.
        alignment: the alignment of each of T tokens. If it is empty, each token comes from the part of the source that
            is at the same share of its length.
    """
    decoder = _Utf8Decoder("replace")
    pieces = [decoder.decode(surface) for surface in surfaces]
    if pieces:
        pieces[-1] += decoder.decode(b"", final=True)
    if not alignment:
        return AlignedText(text, pieces, _proportional(pieces, len(source)))
    spans = token_spans(source, source_surfaces)
    return AlignedText(text, pieces, [spans[each.source_token] for each in alignment])


def _proportional(pieces: Sequence[str], length: int) -> list[tuple[int, int] | None]:
    """Return parts of a source of `length` characters, in the proportion of the pieces' lengths."""
    ends = list(accumulate(map(len, pieces), initial=0))
    whole = max(1, ends[-1])
    return [
        (one * length // whole, max(one * length // whole + 1, other * length // whole)) if length else None
        for one, other in pairwise(ends)
    ]


def replacements(
    token_ids: Sequence[int], alignment: Sequence[AlignedToken], unknown: int, source_surfaces: Sequence[str]
) -> dict[int, str]:
    """Return the source text that each unknown token is aligned to, by the token's position.

    The source text has no white space around it. A token that is aligned to nothing visible has no replacement. A token
    that is aligned to more than 1024 characters has none either.

    Args:
        token_ids: T target tokens.
        alignment: the alignment of each target token.
        unknown: the id of the unknown token.
        source_surfaces: the part of the text that each of S source tokens stands for.
    """
    found = {
        position: source_surfaces[aligned.source_token].strip()
        for position, (token, aligned) in enumerate(zip(token_ids, alignment, strict=True))
        if token == unknown
    }
    return {position: surface for position, surface in found.items() if 0 < len(surface) <= _LONGEST}
