"""Ranks the candidates of a decode step under rules: bans, the repetition penalty, n-grams that may not repeat.

The rules follow Hugging Face's logits processors (https://huggingface.co/docs/transformers/internal/generation_utils).
Greedy search and sampling apply them to logits, and beam search applies them to log-probabilities.

A graph returns the K best candidates of a row. Rules only lower scores, except for a repetition penalty below 1. So no
token outside the K candidates can score more than the last candidate did before the rules. Candidates that still score
more than that are certain. If there are too few of them, the whole row of logits is searched. The result is the same
either way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from translane_server.core.arrays import BoolArray, FloatArray, Int32Array, IntArray
from translane_server.engine.options import Kind
from translane_server.engine.rows import RowTable
from translane_server.engine.search import Search
from translane_server.runtime.backend import Candidates

_NO_NUMBERS = np.zeros(0, np.float32)
_LARGEST = np.finfo(np.float32).max


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of P rows."""

    history: IntArray  # tokens so far, with the decoder's start, [P, L]
    lengths: Int32Array  # number of tokens in each row of `history`, [P]
    on_logits: BoolArray  # whether scores are logits, [P]; otherwise they are log-probabilities
    eos_banned: BoolArray  # whether the end-of-sentence token is banned, [P]
    repetition_penalty: FloatArray  # [P]; 1 is off
    ngram_size: Int32Array  # size of n-grams that may not repeat, [P]; 0 is off
    eos: int
    # row -> masks of banned tokens, each [V]. A token is banned if one of the masks bans it.
    masks: Mapping[int, Sequence[BoolArray]] = field(default_factory=dict)


class Processed(NamedTuple):
    """The best tokens of P rows under their rules."""

    token_ids: IntArray  # the best tokens, best first, [P, K]
    scores: FloatArray  # their scores under the rules, [P, K]; -inf if a row has fewer than K tokens
    log_probs: FloatArray  # their natural log-probabilities under the model alone, [P, K]


def process(
    rules: Rules, token_ids: IntArray, logits: FloatArray, normalisers: FloatArray, needed: Int32Array
) -> Processed:
    """The best tokens of each row under `rules`: as many as it needs, [P], at most K; or all that are not banned.

    `token_ids` are the best tokens without rules, best first, [P, K]. `normalisers`, [P], are the logs of the sums of
    the exponentials of the `logits`, [P, V].
    """
    size = logits.shape[1]
    values = np.take_along_axis(logits, token_ids, axis=1)  # [P, K]
    log_probs = values - normalisers[:, None]
    scores = np.where(rules.on_logits[:, None], values, log_probs)
    bound = scores[:, -1].copy() if token_ids.shape[1] < size else np.full(len(scores), -np.inf, np.float32)
    bound[rules.repetition_penalty < 1] = np.inf  # such a penalty may raise any token
    scores = _penalised(scores, _seen(rules, token_ids), rules.repetition_penalty[:, None])
    scores[_banned(rules, token_ids)] = -np.inf
    order = np.lexsort((token_ids, -scores), axis=1)
    ids = np.take_along_axis(token_ids, order, axis=1)
    scores, log_probs = np.take_along_axis(scores, order, axis=1), np.take_along_axis(log_probs, order, axis=1)
    # A token outside the K candidates that scores as much as the last candidate has a higher id than it.
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


def whole_row(rules: Rules, row: int, logits: FloatArray, normaliser: np.float32) -> FloatArray:
    """Scores of all tokens of one row under its rules: [V] -> [V]."""
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
        one = slice(row, row + 1)
        _, followers = _repeated(rules.history[one], rules.lengths[one], rules.ngram_size[one])
        scores[followers] = -np.inf
    return scores


def best_of_row(scores: FloatArray, count: int) -> tuple[IntArray, FloatArray]:
    """The `count` best tokens of one row and their scores: scores [V] -> [N] and [N], N ≤ `count`.

    The best token is first; the lowest id is first between equal scores. Banned tokens are left out.
    """
    least = np.partition(scores, -count)[-count] if count < len(scores) else -np.inf
    best = np.flatnonzero((scores >= least) & (scores > -np.inf))
    best = best[np.lexsort((best, -scores[best]))][:count]
    return best, scores[best]


def _penalised(
    scores: FloatArray, seen: BoolArray | np.bool_, penalty: npt.NDArray[np.float32] | np.float32
) -> FloatArray:
    """Apply the repetition penalty of Keskar et al. 2019, https://arxiv.org/abs/1909.05858, as Hugging Face does."""
    if np.all(penalty == 1):
        return scores
    with np.errstate(over="ignore", invalid="ignore"):
        penalised = np.where(scores < 0, scores * penalty, scores / penalty)
    # A penalised score that overflows stays finite, because infinity means banned. Banned scores stay -inf.
    penalised = np.where(np.isfinite(scores), penalised.clip(-_LARGEST, _LARGEST), scores)
    result: FloatArray = np.where(seen & np.not_equal(penalty, 1), penalised, scores)
    return result


def _seen(rules: Rules, token_ids: IntArray) -> BoolArray:
    """Whether each token was generated before, in rows with a repetition penalty: [P, K] -> [P, K]."""
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
        rows, followers = _repeated(rules.history, rules.lengths, rules.ngram_size)
        np.logical_or.at(banned, rows, token_ids[rows] == followers[:, None])
    return banned


def _repeated(history: IntArray, lengths: Int32Array, ngram_size: Int32Array) -> tuple[IntArray, IntArray]:
    """The pairs of row and token that would repeat an n-gram: rows [N] and tokens [N].

    `history` [P, L], `lengths` [P] and `ngram_size` [P] are those of `Rules`.
    """
    pairs: list[tuple[IntArray, IntArray]] = []
    for size in np.unique(ngram_size[ngram_size > 0]).tolist():
        rows = np.flatnonzero((ngram_size == size) & (lengths >= size))
        if not rows.size:
            continue
        ends = lengths[rows, None]  # [p, 1]
        tokens = history[rows, : int(ends.max())]
        windows = np.lib.stride_tricks.sliding_window_view(tokens, size, axis=1)  # [p, W, n]
        last = np.take_along_axis(tokens, ends - (size - 1) + np.arange(size - 1), axis=1)  # [p, n - 1]
        same = (windows[:, :, :-1] == last[:, None, :]).all(axis=2)
        same &= np.arange(windows.shape[1]) + size <= ends
        row, window = np.nonzero(same)
        pairs.append((rows[row], windows[row, window, -1]))
    if not pairs:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    return np.concatenate([row for row, _ in pairs]), np.concatenate([token for _, token in pairs])


@dataclass(slots=True)
class RankedTokens:
    """The best tokens of n rows under their rules, best first, and the data to score other tokens."""

    token_ids: IntArray  # the best tokens, [n, K]
    scores: FloatArray  # scores by which the search ranks tokens, [n, K]; -inf is banned
    log_probs: FloatArray  # natural log-probabilities under the model alone, [n, K]
    logits: FloatArray | None  # logits, [n, V]; None if no row needs them
    # log of the sum of the exponentials of the logits, [n]; only for rows that need logits. Empty without logits.
    normalisers: FloatArray
    rules: Rules | None  # rules of the rows that have rules
    rule_rows: dict[int, int]  # row -> its number in `rules`
    _whole_rows: dict[int, FloatArray] = field(default_factory=dict)

    def log_prob(self, row: int, token: int) -> float:
        """Natural log-probability of any token under the model alone, in a row that needs logits."""
        assert self.logits is not None
        return float(self.logits[row, token] - self.normalisers[row])

    def whole_row(self, row: int) -> FloatArray:
        """Scores of all tokens in a row that has rules, [V]. The caller must not write to the array."""
        if row not in self._whole_rows:
            assert self.logits is not None
            assert self.rules is not None
            number = self.rule_rows[row]
            self._whole_rows[row] = whole_row(self.rules, number, self.logits[row], self.normalisers[row])
        return self._whole_rows[row]


def rank_tokens(candidates: Candidates, with_logits: Sequence[Search], table: RowTable, eos: int) -> RankedTokens:
    """Rank the candidates of each row. The rows of the searches `with_logits` need logits at this step."""
    token_ids, log_probs, logits = candidates.token_ids, candidates.log_probs, candidates.logits
    if log_probs is None:  # no row reads them
        log_probs = np.zeros(token_ids.shape, np.float32)
    if not with_logits:
        return RankedTokens(token_ids, log_probs, log_probs, None, _NO_NUMBERS, None, {})
    assert logits is not None
    rows = np.array([row for search in with_logits for row in search.rows])
    normalisers = np.zeros(len(token_ids), np.float32)
    normalisers[rows] = logits[rows, token_ids[rows, 0]] - log_probs[rows, 0]
    owners = [
        (row, search)
        for search in with_logits
        if table.positions[search.rows[0]] >= len(search.forced_ids)
        for row in search.rows
    ]
    if not owners:
        return RankedTokens(token_ids, log_probs, log_probs, logits, normalisers, None, {})
    ruled = np.array([row for row, _ in owners])
    rules = _rules(ruled, [search for _, search in owners], table, eos)
    needed = np.array([min(search.needed_candidates, token_ids.shape[1]) for _, search in owners], np.int32)
    processed = process(rules, token_ids[ruled], logits[ruled], normalisers[ruled], needed)
    token_ids, scores, log_probs = token_ids.copy(), log_probs.copy(), log_probs.copy()
    token_ids[ruled], scores[ruled], log_probs[ruled] = processed
    numbers = {row: number for number, (row, _) in enumerate(owners)}
    return RankedTokens(token_ids, scores, log_probs, logits, normalisers, rules, numbers)


def _rules(rows: IntArray, searches: Sequence[Search], table: RowTable, eos: int) -> Rules:
    """The rules of `rows` [P]. `searches` holds the search of each row."""
    positions = table.positions[rows]
    options = [search.options for search in searches]
    return Rules(
        history=table.history[rows],
        lengths=positions + 1,
        on_logits=np.array([each.kind is not Kind.BEAM for each in options]),
        eos_banned=positions < np.array([search.eos_from for search in searches]),
        repetition_penalty=np.array([each.repetition_penalty for each in options], np.float32),
        ngram_size=np.array([each.no_repeat_ngram_size for each in options], np.int32),
        eos=eos,
        masks={
            number: masks
            for number, (row, search) in enumerate(zip(rows.tolist(), searches, strict=True))
            if (masks := _masks(search, table, row))
        },
    )


def _masks(search: Search, table: RowTable, row: int) -> list[BoolArray]:
    """The masks [V] of tokens that are banned in a row."""
    position, masks = table.positions.item(row), []
    if search.banned is not None:
        masks.append(search.banned)
    if search.banned_first is not None and position == len(search.forced_ids):
        masks.append(search.banned_first)
    if search.phrases is not None:
        masks.append(search.phrases.banned(table.tokens(row, 0, position)))
    return masks
