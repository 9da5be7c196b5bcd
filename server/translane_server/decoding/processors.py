"""Scores of candidate tokens under a row's rules: what is banned scores -inf, what was generated already is penalised.

The rules are those of Hugging Face's logits processors
(https://huggingface.co/docs/transformers/internal/generation_utils), and as there they work on the logits where one
token is chosen, and on log-probabilities where beams are searched.

A graph returns the K best candidates of a row. Rules only ever lower scores (but a repetition penalty below 1), so
that whatever is not among the K scores less than the last of them: as many candidates as still score as much are
certain. Where these are too few, the whole row of logits is looked at. A row's result is the same either way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from translane_server.arrays import BoolArray, FloatArray, Int32Array, IntArray

_LARGEST = np.finfo(np.float32).max


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of P rows.

    Attributes:
        history: tokens so far, the decoder's start included, [P, L]; `lengths` [P] of them.
        on_logits: whether scores are logits; else log-probabilities, [P].
        eos_banned: whether the sentence may not end yet, [P].
        repetition_penalty: [P]; 1 is off.
        ngram_size: [P]; 0 is off.
        eos: the end-of-sentence id.
        masks: for rows that ban tokens, which of the V tokens; several masks [V] add up.
    """

    history: IntArray
    lengths: Int32Array
    on_logits: BoolArray
    eos_banned: BoolArray
    repetition_penalty: FloatArray
    ngram_size: Int32Array
    eos: int
    masks: Mapping[int, Sequence[BoolArray]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Processed:
    """The best tokens of P rows, best first, all [P, K]: -inf where there are fewer than K.

    `scores` are what rules have made of the logits or log-probabilities; `log_probs` are the model's own.
    """

    token_ids: IntArray
    scores: FloatArray
    log_probs: FloatArray


def process(
    rules: Rules, token_ids: IntArray, logits: FloatArray, normalisers: FloatArray, needed: Int32Array
) -> Processed:
    """The `needed` best tokens of each row under `rules`.

    Args:
        rules: of P rows.
        token_ids: the best tokens before rules, best first, [P, K].
        logits: [P, V].
        normalisers: log of the sum of the exponentials of the logits, [P].
        needed: how many tokens of each row are asked for, [P], at most K.
    """
    size = logits.shape[1]
    values = np.take_along_axis(logits, token_ids, axis=1)  # [P, K]
    log_probs = values - normalisers[:, None]
    scores = np.where(rules.on_logits[:, None], values, log_probs)
    bound = scores[:, -1].copy() if token_ids.shape[1] < size else np.full(len(scores), -np.inf, np.float32)
    bound[rules.repetition_penalty < 1] = np.inf  # which may raise any token
    scores = _penalised(scores, _seen(rules, token_ids), rules.repetition_penalty[:, None])
    scores[_banned(rules, token_ids)] = -np.inf
    order = np.lexsort((token_ids, -scores), axis=1)
    ids = np.take_along_axis(token_ids, order, axis=1)
    scores, log_probs = np.take_along_axis(scores, order, axis=1), np.take_along_axis(log_probs, order, axis=1)
    # of those that score as much as the last candidate, tokens that are none of the K have higher ids than it
    sure = (scores > bound[:, None]) | ((scores == bound[:, None]) & (ids <= token_ids[:, -1:]))
    certain = np.count_nonzero(sure & (scores > -np.inf), axis=1)
    scores[~sure] = -np.inf
    for row in np.flatnonzero((certain < needed) & ((token_ids.shape[1] < size) | (bound == np.inf))).tolist():
        count = int(needed[row])
        best, values = best_of_row(whole_row(rules, row, logits[row], normalisers[row]), count)
        ids[row, : len(best)], scores[row, : len(best)] = best, values
        log_probs[row, : len(best)] = logits[row, best] - normalisers[row]
        scores[row, len(best) :] = -np.inf
    return Processed(ids, scores, log_probs)


def score_tokens(rules: Rules, row: int, token_ids: IntArray, logits: FloatArray, normaliser: np.float32) -> FloatArray:
    """Scores of some tokens of one row: logits [V], token_ids [N] -> [N]."""
    one = _one(rules, row)
    scores = logits[token_ids] if rules.on_logits[row] else logits[token_ids] - normaliser
    scores = _penalised(scores[None], _seen(one, token_ids[None]), one.repetition_penalty[:, None])
    scores[_banned(one, token_ids[None])] = -np.inf
    result: FloatArray = scores[0]
    return result


def whole_row(rules: Rules, row: int, logits: FloatArray, normaliser: np.float32) -> FloatArray:
    """Scores of all tokens of one row: [V] -> [V]."""
    one = _one(rules, row)
    scores = logits.copy() if rules.on_logits[row] else logits - normaliser
    length, penalty = int(rules.lengths[row]), rules.repetition_penalty[row]
    if penalty != 1:
        seen = np.unique(rules.history[row, :length])
        scores[seen] = _penalised(scores[seen], np.True_, penalty)
    for mask in rules.masks.get(row, ()):
        scores[mask] = -np.inf
    if rules.eos_banned[row]:
        scores[rules.eos] = -np.inf
    if rules.ngram_size[row]:
        _, followers = _repeated(one)
        scores[followers] = -np.inf
    return scores


def best_of_row(scores: FloatArray, count: int) -> tuple[IntArray, FloatArray]:
    """The `count` best tokens of one row and their scores, fewer where the others are banned: scores [V].

    Best first, and of equal ones the lowest id first.
    """
    least = np.partition(scores, -count)[-count] if count < len(scores) else -np.inf
    best = np.flatnonzero((scores >= least) & (scores > -np.inf))
    best = best[np.lexsort((best, -scores[best]))][:count]
    return best, scores[best]


def _one(rules: Rules, row: int) -> Rules:
    rows = slice(row, row + 1)
    return Rules(
        rules.history[rows],
        rules.lengths[rows],
        rules.on_logits[rows],
        rules.eos_banned[rows],
        rules.repetition_penalty[rows],
        rules.ngram_size[rows],
        rules.eos,
        {0: rules.masks[row]} if row in rules.masks else {},
    )


def _penalised(
    scores: FloatArray, seen: BoolArray | np.bool_, penalty: npt.NDArray[np.float32] | np.float32
) -> FloatArray:
    """Keskar et al. 2019, https://arxiv.org/abs/1909.05858, with Hugging Face's treatment of negative scores."""
    if np.all(penalty == 1):
        return scores
    with np.errstate(over="ignore", invalid="ignore"):
        penalised = np.where(scores < 0, scores * penalty, scores / penalty)
    # a penalty beyond the numbers there are bans nothing, and what is banned stays so
    penalised = np.where(np.isfinite(scores), penalised.clip(-_LARGEST, _LARGEST), scores)
    result: FloatArray = np.where(seen & np.not_equal(penalty, 1), penalised, scores)
    return result


def _seen(rules: Rules, token_ids: IntArray) -> BoolArray:
    """Whether each token was generated before, in rows that penalise it: [P, K] -> [P, K]."""
    seen = np.zeros(token_ids.shape, np.bool_)
    rows = np.flatnonzero(rules.repetition_penalty != 1)
    if rows.size:
        length = int(rules.lengths[rows].max())
        history = np.where(np.arange(length) < rules.lengths[rows, None], rules.history[rows, :length], -1)
        seen[rows] = (token_ids[rows][:, :, None] == history[:, None, :]).any(axis=2)
    return seen


def _banned(rules: Rules, token_ids: IntArray) -> BoolArray:
    """Whether a rule bans each token: [P, K] -> [P, K]."""
    banned: BoolArray = rules.eos_banned[:, None] & (token_ids == rules.eos)
    for row, masks in rules.masks.items():
        for mask in masks:
            banned[row] |= mask[token_ids[row]]
    if rules.ngram_size.any():
        rows, followers = _repeated(rules)
        np.logical_or.at(banned, rows, token_ids[rows] == followers[:, None])
    return banned


def _repeated(rules: Rules) -> tuple[IntArray, IntArray]:
    """Rows and tokens that would complete an n-gram a second time, as pairs: [N] and [N]."""
    pairs: list[tuple[IntArray, IntArray]] = []
    for size in np.unique(rules.ngram_size[rules.ngram_size > 0]).tolist():
        rows = np.flatnonzero((rules.ngram_size == size) & (rules.lengths >= size))
        if not rows.size:
            continue
        lengths = rules.lengths[rows]
        history = rules.history[rows, : int(lengths.max())]
        windows = np.lib.stride_tricks.sliding_window_view(history, size, axis=1)  # [p, W, n]
        last = np.take_along_axis(history, lengths[:, None] - (size - 1) + np.arange(size - 1), axis=1)  # [p, n - 1]
        same = (windows[:, :, :-1] == last[:, None, :]).all(axis=2)
        same &= np.arange(windows.shape[1]) + size <= lengths[:, None]
        row, window = np.nonzero(same)
        pairs.append((rows[row], windows[row, window, -1]))
    if not pairs:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    return np.concatenate([row for row, _ in pairs]), np.concatenate([token for _, token in pairs])
