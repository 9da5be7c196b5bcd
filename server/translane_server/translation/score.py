"""Turns given translations into sentences to score, and results into scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from translane.requests import ScoringRequest
from translane.results import Score
from translane_server.bundle.manifest import Manifest
from translane_server.core.budget import UNLIMITED, Budget, OverBudgetError
from translane_server.core.errors import FieldViolation
from translane_server.engine.options import DecodingOptions
from translane_server.engine.sequence import Sentence, SentenceResult
from translane_server.text.tokenizer import Tokenizer, tokenize
from translane_server.translation.languages import LanguagePair, LanguagePairs
from translane_server.translation.limits import RequestLimits, check_inputs, check_tokens, refuse, takes_too_long

_SOURCE, _TARGET = "inputs[{}].source", "inputs[{}].target"
_FORCED_ONLY = DecodingOptions(max_length=0)


@dataclass(frozen=True)
class PreparedScores:
    """A request as sentences whose forced tokens are scored, and the pair that has encoded them."""

    sentences: Sequence[Sentence]
    pair: LanguagePair

    def scores(self, results: Sequence[SentenceResult], tokens: bool, budget: Budget = UNLIMITED) -> list[Score]:
        """Return the score of each sentence, with the tokens if `tokens` is set. Tokens of a language have no score.

        Raises:
            WorkEndedError: the budget, which is checked between the sentences, has ended.
        """
        hidden = len(self.pair.forced_ids)
        scores = []
        for sentence, result in zip(self.sentences, results, strict=True):
            budget.check()
            log_probs = result.hypotheses[0].token_log_probs[hidden:]
            pieces = self.pair.tokenizer.target_pieces(sentence.forced_ids[hidden:]) if tokens else ()
            scores.append(Score(math.fsum(log_probs), log_probs, tuple(pieces)))
        return scores


class ScoreReader:
    """Turns `Score` requests to one model into sentences."""

    def __init__(self, manifest: Manifest, tokenizer: Tokenizer, limits: RequestLimits) -> None:
        self._eos = manifest.special_ids.eos
        self._pairs = LanguagePairs(manifest.languages, tokenizer)
        self._limits = limits

    def check(self, request: ScoringRequest) -> int:
        """Refuse a request that is too large to be tokenized, and return how many sentences it has.

        This is as cheap as `TranslateReader.check`, and raises the same errors.
        """
        check_inputs(request, self._limits)
        if not request.inputs:
            _, wrong_languages = self._pairs.find(request.source_language, request.target_language)
            refuse([FieldViolation("inputs", "is empty; at least one is needed"), *wrong_languages])
        return len(request.inputs)

    def read(self, request: ScoringRequest, budget: Budget = UNLIMITED) -> PreparedScores:
        """Tokenize a request that passed `check`. Takes as long, and raises, as `TranslateReader.read`.

        An empty target is scored, too. It has one token, the end-of-sentence token.
        """
        limits = self._limits.tokens
        pair, wrong = self._pairs.find(request.source_language, request.target_language)
        try:
            sources = tokenize(pair.encode, [source for source, _ in request.inputs], budget)
            encoded = tokenize(pair.tokenizer.encode_target, [target for _, target in request.inputs], budget)
        except OverBudgetError:
            raise takes_too_long("inputs", budget) from None
        targets = [[*pair.forced_ids, *ids, self._eos] for ids in encoded]
        empty = [FieldViolation(_SOURCE.format(n), "has no tokens") for n, ids in enumerate(sources) if not ids]
        too_long = [*check_tokens(_SOURCE, sources, limits.source), *check_tokens(_TARGET, targets, limits.target)]
        refuse([*empty, *too_long, *wrong])
        sentences = [
            Sentence(source, _FORCED_ONLY, forced_ids=tuple(target))
            for source, target in zip(sources, targets, strict=True)
        ]
        return PreparedScores(sentences, pair)
