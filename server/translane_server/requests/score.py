"""Turns given translations into sentences to score, and results into scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from translane.v1 import translation_pb2 as pb
from translane_server.errors import FieldViolation
from translane_server.manifest import Manifest
from translane_server.options import DecodingOptions
from translane_server.requests.language_pairs import LanguagePairs
from translane_server.requests.limits import (
    RequestLimits,
    check_characters,
    check_count,
    check_tokens,
    refuse,
)
from translane_server.sentence import Sentence, SentenceResult
from translane_server.text.tokenizer import Tokenizer

_SOURCE, _TARGET = "inputs[{}].source", "inputs[{}].target"
_FORCED_ONLY = DecodingOptions(max_length=0)


@dataclass(frozen=True)
class PreparedScores:
    """The sentences to score. The first `language_tokens` forced tokens name a language, and have no score."""

    sentences: Sequence[Sentence]
    language_tokens: int = 0


class ScoreReader:
    """Turns `Score` requests to one model into sentences.

    Args:
        manifest: the model's manifest.
        tokenizer: the model's tokenizer.
        limits: the limits of every request.
    """

    def __init__(self, manifest: Manifest, tokenizer: Tokenizer, limits: RequestLimits) -> None:
        self._manifest = manifest
        self._tokenizer = tokenizer
        self._pairs = LanguagePairs(manifest.languages, tokenizer)
        self._limits = limits

    def check(self, request: pb.ScoreRequest) -> int:
        """Refuse a request that is too large to be tokenized. This is cheap, and done on the event loop.

        Returns:
            How many sentences the request has.

        Raises:
            InvalidRequestError: there are no texts, too many texts, or texts that are too long.
        """
        inputs, tokens = request.inputs, self._limits.tokens
        wrong = check_count("inputs", len(inputs), self._limits.texts_per_request)
        if not wrong:
            wrong += check_characters(_SOURCE, [each.source for each in inputs], tokens.source)
            wrong += check_characters(_TARGET, [each.target for each in inputs], tokens.target)
        if wrong:
            refuse([*wrong, *self._pairs.find(request.source_language, request.target_language)[1]])
        return len(inputs)

    def read(self, request: pb.ScoreRequest) -> PreparedScores:
        """Tokenize a request that passed `check`. A long request takes too long for the event loop.

        An empty target is scored, too. It has one token, the end-of-sentence token.

        Raises:
            InvalidRequestError: the request is wrong. The error names everything that is wrong.
        """
        limits, eos = self._limits.tokens, self._manifest.special_ids.eos
        pair, wrong = self._pairs.find(request.source_language, request.target_language)
        sources = pair.encode([each.source for each in request.inputs])
        encoded = pair.tokenizer.encode_target([each.target for each in request.inputs])
        targets = [[*pair.forced_ids, *ids, eos] for ids in encoded]
        refuse(
            [
                *[
                    FieldViolation(_SOURCE.format(number), "has no tokens")
                    for number, ids in enumerate(sources)
                    if not ids
                ],
                *check_tokens(_SOURCE, sources, limits.source),
                *check_tokens(_TARGET, targets, limits.target),
                *wrong,
            ]
        )
        sentences = [
            Sentence(source, _FORCED_ONLY, forced_ids=tuple(target))
            for source, target in zip(sources, targets, strict=True)
        ]
        return PreparedScores(sentences, len(pair.forced_ids))

    def scores(self, prepared: PreparedScores, results: Sequence[SentenceResult], *, tokens: bool) -> list[pb.Score]:
        """Return the message of each sentence's result, with the tokens if `tokens` is set."""
        hidden = prepared.language_tokens
        log_probs = [result.hypotheses[0].token_log_probs[hidden:] for result in results]
        return [
            pb.Score(
                total_log_prob=math.fsum(each),
                token_log_probs=each,
                tokens=self._tokenizer.target_pieces(sentence.forced_ids[hidden:]) if tokens else (),
            )
            for sentence, each in zip(prepared.sentences, log_probs, strict=True)
        ]
