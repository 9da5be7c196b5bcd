"""Given translations as sentences for the engine, and how probable it finds them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from translane.v1 import translation_pb2 as pb
from translane_server.bundle import Manifest
from translane_server.errors import FieldViolation
from translane_server.options import DecodingOptions
from translane_server.request import Sentence, SentenceResult
from translane_server.tokenizer import Tokenizer
from translane_server.validation import (
    RequestLimits,
    check_characters,
    check_count,
    check_languages,
    check_tokens,
    refuse,
)

_FORCED_ONLY = DecodingOptions(max_length=0)


class Scoring:
    """Checks and prepares requests for one model.

    Args:
        manifest: of the model.
        tokenizer: the model's.
        limits: what requests are held to.
    """

    def __init__(self, manifest: Manifest, tokenizer: Tokenizer, limits: RequestLimits) -> None:
        self._manifest = manifest
        self._tokenizer = tokenizer
        self._limits = limits

    def check(self, request: pb.ScoreRequest) -> None:
        """Refuse what is not worth the work of counting tokens.

        Raises:
            InvalidRequestError: there are no inputs, too many of them, or too long ones.
        """
        tokens = self._limits.tokens
        wrong = check_count("inputs", len(request.inputs), self._limits.texts_per_request)
        if not wrong:
            wrong = [
                *check_characters(_named(request, "source"), tokens.source),
                *check_characters(_named(request, "target"), tokens.target),
            ]
        if wrong:
            refuse([*wrong, *self._check_languages(request)])

    def prepare(self, request: pb.ScoreRequest) -> list[Sentence]:
        """Make tokens of a request that passed `check`. Takes a while: not for the event loop.

        An empty target is scored: it is the end-of-sentence token alone.

        Raises:
            InvalidRequestError: naming everything that is wrong.
        """
        limits, eos = self._limits.tokens, self._manifest.special_ids.eos
        sources = self._tokenizer.encode([each.source for each in request.inputs])
        targets = [[*ids, eos] for ids in self._tokenizer.encode_target([each.target for each in request.inputs])]
        named_sources = [(f"inputs[{index}].source", ids) for index, ids in enumerate(sources)]
        named_targets = [(f"inputs[{index}].target", ids) for index, ids in enumerate(targets)]
        refuse(
            [
                *[FieldViolation(name, "has no tokens") for name, ids in named_sources if not ids],
                *check_tokens(named_sources, limits.source),
                *check_tokens(named_targets, limits.target),
                *self._check_languages(request),
            ]
        )
        return [
            Sentence(source, _FORCED_ONLY, forced_ids=tuple(target))
            for source, target in zip(sources, targets, strict=True)
        ]

    def scores(
        self, sentences: Sequence[Sentence], results: Sequence[SentenceResult], *, tokens: bool
    ) -> list[pb.Score]:
        """The message of each sentence's result, with the tokens where they are asked for."""
        return [
            pb.Score(
                total_log_prob=math.fsum(result.hypotheses[0].token_log_probs),
                token_log_probs=result.hypotheses[0].token_log_probs,
                tokens=self._tokenizer.target_pieces(sentence.forced_ids) if tokens else (),
            )
            for sentence, result in zip(sentences, results, strict=True)
        ]

    def _check_languages(self, request: pb.ScoreRequest) -> list[FieldViolation]:
        return check_languages(request, self._manifest.source_languages, self._manifest.target_languages)


def _named(request: pb.ScoreRequest, side: str) -> list[tuple[str, str]]:
    """The texts of one side of all inputs, after the names of their fields."""
    return [(f"inputs[{index}].{side}", getattr(each, side)) for index, each in enumerate(request.inputs)]
