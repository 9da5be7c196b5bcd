"""Ranks the candidates of a decode step under the rules of each search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from translane_server.core.arrays import BoolArray, FloatArray, IntArray
from translane_server.engine import processors
from translane_server.engine.options import Kind
from translane_server.engine.rows import RowTable
from translane_server.engine.search import Search
from translane_server.runtime.backend import Candidates

_NO_NUMBERS = np.zeros(0, np.float32)


@dataclass(slots=True)
class RankedTokens:
    """The best tokens of n rows under their rules, best first, and the data to score other tokens."""

    token_ids: IntArray  # the best tokens, [n, K]
    scores: FloatArray  # scores by which the search ranks tokens, [n, K]; -inf is banned
    log_probs: FloatArray  # natural log-probabilities under the model alone, [n, K]
    logits: FloatArray | None  # logits, [n, V]; None if no row needs them
    # log of the sum of the exponentials of the logits, [n]; only for rows that need logits. Empty without logits.
    normalisers: FloatArray
    rules: processors.Rules | None  # rules of the rows that have rules
    rule_rows: dict[int, int]  # row -> its number in `rules`

    def log_prob(self, row: int, token: int) -> float:
        """Natural log-probability of any token under the model alone, in a row that needs logits."""
        assert self.logits is not None
        return float(self.logits[row, token] - self.normalisers[row])

    def score(self, row: int, token: int) -> float:
        """Score of any token in a row that has rules."""
        assert self.logits is not None
        assert self.rules is not None
        number = self.rule_rows[row]
        scores = processors.score_tokens(self.rules, number, np.array([token]), self.logits[row], self.normalisers[row])
        return float(scores[0])


def rank_tokens(candidates: Candidates, with_logits: Sequence[Search], table: RowTable, eos: int) -> RankedTokens:
    """Rank the candidates of each row.

    Args:
        candidates: the results of the step, for n rows.
        with_logits: the searches whose rows need logits at this step.
        table: the state of the rows.
        eos: the end-of-sentence id.
    """
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
    processed = processors.process(rules, token_ids[ruled], logits[ruled], normalisers[ruled], needed)
    token_ids, scores, log_probs = token_ids.copy(), log_probs.copy(), log_probs.copy()
    token_ids[ruled], scores[ruled], log_probs[ruled] = processed.token_ids, processed.scores, processed.log_probs
    numbers = {row: number for number, (row, _) in enumerate(owners)}
    return RankedTokens(token_ids, scores, log_probs, logits, normalisers, rules, numbers)


def _rules(rows: IntArray, searches: Sequence[Search], table: RowTable, eos: int) -> processors.Rules:
    """The rules of `rows` [P]. `searches` holds the search of each row."""
    positions = table.positions[rows]
    return processors.Rules.of(
        [search.options for search in searches],
        history=table.history[rows],
        lengths=positions + 1,
        on_logits=np.array([search.options.kind is not Kind.BEAM for search in searches]),
        eos_banned=positions < np.array([search.eos_from for search in searches]),
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
