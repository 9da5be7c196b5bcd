"""Decoding by its definition: one sentence at a time, over the whole vocabulary. It is slow, and easy to check."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from translane_server.core.arrays import FloatArray
from translane_server.engine.options import DecodingOptions
from translane_server.engine.sequence import Sentence, TargetVocabulary

Doubles = npt.NDArray[np.float64]


class Model(Protocol):
    """A model that returns logits, and to what it attends."""

    vocabulary: TargetVocabulary

    def logits(self, source: Sequence[int], fed: Sequence[int]) -> FloatArray:
        """Return the logits of the next token, [V], after the tokens `fed`, which include the decoder's start."""

    def attention(self, source: Sequence[int], fed: Sequence[int]) -> FloatArray:
        """Return the attention of the same step over the source, [S]."""


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


def next_scores(
    scores: Doubles, history: Sequence[int], generated: int, sentence: Sentence, vocabulary: TargetVocabulary
) -> Doubles:
    """Apply all rules of a sentence to the scores of one row: float64 [V]."""
    scores = process(scores, history, generated, sentence.options, vocabulary)
    if sentence.word_follows and len(history) == 1 + len(sentence.forced_ids):
        for token, surface in enumerate(vocabulary.surfaces):
            if token != vocabulary.eos and not surface.startswith(b" "):
                scores[token] = -np.inf
    return scores


def steps(sentence: Sentence) -> range:
    """The number of generated tokens before each step; forced tokens that count are among them."""
    counted, most = sentence.counted_ids, sentence.options.max_length
    return range(counted, max(most, counted + 1))


def greedy(model: Model, sentence: Sentence) -> Reference:
    vocabulary, source = model.vocabulary, sentence.source_ids
    history = [vocabulary.decoder_start, *sentence.forced_ids]
    score = 0.0
    for generated in steps(sentence):
        logits = model.logits(source, history)
        token = int(next_scores(logits.astype(np.float64), history, generated, sentence, vocabulary).argmax())
        score += log_softmax(logits)[token]
        if token == vocabulary.eos:
            return Reference(tuple(history[1:]), score, True)
        history.append(token)
    return Reference(tuple(history[1:]), score, False)


def coverage(model: Model, source: Sequence[int], history: Sequence[int]) -> float:
    """The sum of log(min(attention of all steps, 1)) over the source, after the step that was fed `history`."""
    attention = sum(model.attention(source, history[: step + 1]).astype(np.float64) for step in range(len(history)))
    return float(np.log(np.minimum(attention, 1)).sum())


def beam_search(model: Model, sentence: Sentence) -> list[Reference]:
    """Search as Hugging Face's generate does.

    `patience` multiplies the size of the pool, and the coverage of the source counts when a hypothesis enters it.
    """
    vocabulary, source, options = model.vocabulary, sentence.source_ids, sentence.options
    beam_size = options.beam_size
    beams = [(0.0, [vocabulary.decoder_start, *sentence.forced_ids])]
    pool: list[Reference] = []
    capacity = max(1, round(options.patience * beam_size))
    for generated in steps(sentence):
        candidates: list[tuple[float, list[int], int]] = []
        for total, history in beams:
            log_probs = log_softmax(model.logits(source, history))
            scores = next_scores(log_probs, history, generated, sentence, vocabulary)
            candidates += [(total + scores[token], history, token) for token in range(len(scores))]
        candidates.sort(key=lambda candidate: -candidate[0])
        length = generated + 1
        at_limit = length == steps(sentence).stop
        going: list[tuple[float, list[int]]] = []
        for rank, (total, history, token) in enumerate(candidates[: 2 * beam_size]):
            if total == -math.inf:
                break
            ended = token == vocabulary.eos
            if ended or at_limit:
                if rank < beam_size:
                    tokens = tuple(history[1:]) if ended else (*history[1:], token)
                    score = total / length**options.length_penalty
                    if options.coverage_penalty:
                        score += options.coverage_penalty * coverage(model, source, history)
                    pool.append(Reference(tokens, score, ended))
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
