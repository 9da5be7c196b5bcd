"""Builds the protocol's messages from decoded sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from translane.v1 import translation_pb2 as pb
from translane_server.manifest import SpecialIds
from translane_server.quality_estimate import NOTHING_GENERATED, UNCALIBRATED, Calibration, estimated_quality
from translane_server.requests.aligning import aligned_text
from translane_server.requests.language_pairs import LanguagePair
from translane_server.requests.resolved_options import ResolvedOptions, Returned
from translane_server.requests.source import Source
from translane_server.requests.unknowns import replacements
from translane_server.sentence import AlignedToken, CertainTokens, Hypothesis, SentenceResult
from translane_server.text.placing import place


class TranslationBuilder:
    """Builds messages from decoded sentences.

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
        self._returned = resolved.returned
        self._spaced = spaced
        self._calibration = calibration

    def translation(self, source: Source, result: SentenceResult) -> pb.Translation:
        """Return the message of a sentence's hypotheses."""
        translation = pb.Translation(
            hypotheses=[self.hypothesis(source, each) for each in result.hypotheses], source_tokens=len(source.ids)
        )
        if self._returned.tokens or self._returned.alignment:
            translation.source_pieces.extend(self._tokenizer.source_pieces(source.ids))
        return translation

    def hypothesis(self, source: Source, hypothesis: Hypothesis) -> pb.Hypothesis:
        """Return the message of a hypothesis."""
        message = pb.Hypothesis(
            text=self._text(source, hypothesis),
            score=hypothesis.score,
            finish_reason=pb.FINISH_REASON_END_OF_SENTENCE if hypothesis.is_complete else pb.FINISH_REASON_MAX_LENGTH,
        )
        hidden = self.resolved.language_tokens
        if self._returned.tokens:
            message.tokens.extend(self._tokenizer.target_pieces(self._with_end(hypothesis)[hidden:]))
        if self._returned.token_scores:
            message.token_log_probs.extend(hypothesis.token_log_probs[hidden:])
        if self._returned.alignment:
            message.alignment.points.extend(
                pb.AlignmentPoint(source_token=each.source_token, target_token=position, weight=each.weight)
                for position, each in enumerate(hypothesis.alignment[hidden:])
            )
        if self._returned.quality:
            generated = hypothesis.token_log_probs[len(self.resolved.forced_ids) :]
            message.quality = estimated_quality(generated, self._calibration)
            if not self._returned.score:
                message.ClearField("score")
        return message

    def surfaces(self, source: Source, tokens: CertainTokens) -> list[bytes]:
        """Return what each of `tokens` adds to the text of a translation of `source`, as UTF-8."""
        known = self._tokenizer.target_surfaces
        parts = [known[token] for token in tokens.token_ids]
        for position, text in self._unknowns(source, tokens.token_ids, tokens.alignment).items():
            parts[position] = text.encode()
        return parts

    def source_surfaces(self, source: Source) -> Sequence[str]:
        """Return the part of the text that each token of `source` stands for. It is found once for each source."""
        if source.surfaces is None:
            source.surfaces = self._pair.source_surfaces(source.text)
        return source.surfaces

    def _text(self, source: Source, hypothesis: Hypothesis) -> str:
        unknowns = self._unknowns(source, hypothesis.token_ids, hypothesis.alignment)
        text = self._tokenizer.decode([hypothesis.token_ids], [unknowns] if unknowns else ())[0]
        return text if source.marked is None else self._with_marks(source, hypothesis, text)

    def _with_marks(self, source: Source, hypothesis: Hypothesis, text: str) -> str:
        """Return the translation `text` with the marks of its source."""
        assert source.marked is not None
        if not source.marked.marks:
            return source.escape(text)
        surfaces = self.surfaces(source, CertainTokens(hypothesis.token_ids, hypothesis.alignment))
        source_surfaces = self.source_surfaces(source) if hypothesis.alignment else ()
        target = aligned_text(text, surfaces, source.text, source_surfaces, hypothesis.alignment)
        return place(source.marked, target, spaced=self._spaced, escape=source.escape)

    def _unknowns(
        self, source: Source, token_ids: Sequence[int], alignment: Sequence[AlignedToken]
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

    def _with_end(self, hypothesis: Hypothesis) -> tuple[int, ...]:
        return (*hypothesis.token_ids, self._ids.eos) if hypothesis.is_complete else hypothesis.token_ids


def empty_translation() -> pb.Translation:
    """Return the translation of a text without tokens."""
    return pb.Translation(hypotheses=[pb.Hypothesis(finish_reason=pb.FINISH_REASON_END_OF_SENTENCE)])


def rate_nothing(hypothesis: pb.Hypothesis, returned: Returned) -> None:
    """Give the hypothesis of a text without tokens the score and the estimated quality that `returned` asks for."""
    if returned.score:
        hypothesis.score = 0.0  # the sum of no log-probabilities
    if returned.quality:
        hypothesis.quality = NOTHING_GENERATED
