"""Decoding by its definition: one sentence at a time, over the whole vocabulary. It is slow, and easy to check."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from translane_server.core.arrays import FloatArray
from translane_server.engine.options import DecodingOptions
from translane_server.engine.sequence import TargetVocabulary

Doubles = npt.NDArray[np.float64]


class Model(Protocol):
    """A model that returns logits."""

    vocabulary: TargetVocabulary

    def logits(self, source: Sequence[int], fed: Sequence[int]) -> FloatArray:
        """Return the logits of the next token, [V], after the tokens `fed`, which include the decoder's start."""


@dataclass(frozen=True)
class Reference:
    """Tokens (with forced tokens, without the end of the sentence), score, and whether the sentence has ended."""

    token_ids: tuple[int, ...]
    score: float
    ended: bool


def log_softmax(logits: FloatArray) -> Doubles:
    shifted: Doubles = logits.astype(np.float64) - logits.max()
    log_probs: Doubles = shifted - np.log(np.exp(shifted).sum())
    return log_probs


def process(
    scores: Doubles, history: Sequence[int], generated: int, options: DecodingOptions, vocabulary: TargetVocabulary
) -> Doubles:
    """Apply Hugging Face's logits processors to the scores of one row: float64 [V]."""
    scores = scores.copy()
    for token in set(history):
        penalty = options.repetition_penalty
        scores[token] = scores[token] * penalty if scores[token] < 0 else scores[token] / penalty
    if generated < options.min_length:
        scores[vocabulary.eos] = -np.inf
    n = options.no_repeat_ngram_size
    if n and len(history) >= n:
        last = history[len(history) - n + 1 :]
        for start in range(len(history) - n + 1):
            if history[start : start + n - 1] == last:
                scores[history[start + n - 1]] = -np.inf
    scores[list(options.suppressed_ids)] = -np.inf
    if options.suppressed_phrases:
        text = b"".join(vocabulary.surfaces[token] for token in history[1:])
        for token in range(len(scores)):
            longer = text + vocabulary.surfaces[token]
            # the first space is not part of the text
            if any(phrase in longer.removeprefix(b" ") for phrase in options.suppressed_phrases):
                scores[token] = -np.inf
    return scores


def greedy(model: Model, source: Sequence[int], options: DecodingOptions, forced: Sequence[int] = ()) -> Reference:
    history = [model.vocabulary.decoder_start, *forced]
    score = 0.0
    for generated in range(options.max_length):
        logits = model.logits(source, history)
        token = int(process(logits.astype(np.float64), history, generated, options, model.vocabulary).argmax())
        score += log_softmax(logits)[token]
        if token == model.vocabulary.eos:
            return Reference(tuple(history[1:]), score, True)
        history.append(token)
    return Reference(tuple(history[1:]), score, False)


def beam_search(
    model: Model, source: Sequence[int], options: DecodingOptions, forced: Sequence[int] = ()
) -> list[Reference]:
    """Search as Hugging Face's generate does; `patience` multiplies the size of the pool."""
    vocabulary, beam_size = model.vocabulary, options.beam_size
    beams = [(0.0, [vocabulary.decoder_start, *forced])]
    pool: list[Reference] = []
    capacity = max(1, round(options.patience * beam_size))
    for generated in range(options.max_length):
        candidates: list[tuple[float, list[int], int]] = []
        for total, history in beams:
            scores = process(log_softmax(model.logits(source, history)), history, generated, options, vocabulary)
            candidates += [(total + scores[token], history, token) for token in range(len(scores))]
        candidates.sort(key=lambda candidate: -candidate[0])
        at_limit = generated + 1 == options.max_length
        going: list[tuple[float, list[int]]] = []
        length = generated + 1
        for rank, (total, history, token) in enumerate(candidates[: 2 * beam_size]):
            if total == -math.inf:
                break
            ended = token == vocabulary.eos
            if ended or at_limit:
                if rank < beam_size:
                    tokens = tuple(history[1:]) if ended else (*history[1:], token)
                    pool.append(Reference(tokens, total / length**options.length_penalty, ended))
            elif len(going) < beam_size:
                going.append((total, [*history, token]))
        pool.sort(key=lambda hypothesis: -hypothesis.score)
        del pool[capacity:]
        beams = going
        if not beams:
            break
        if len(pool) == capacity and (
            options.early_stopping or beams[0][0] / length**options.length_penalty <= pool[-1].score
        ):
            break
    return pool[: options.num_hypotheses]
