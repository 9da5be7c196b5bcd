"""One step's outcome, row by row: the best tokens under each row's rules, and what a row may go on with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from translane_server.backend import BoolArray, Candidates, FloatArray, IntArray
from translane_server.batch.rows import RowTable
from translane_server.batch.search import Kind, Search
from translane_server.decoding import processors
from translane_server.decoding.masks import MaskTable

_NO_NUMBERS = np.zeros(0, np.float32)


class Child(NamedTuple):
    """A hypothesis with one more token: `score` is that of all its generated tokens."""

    parent: int  # row
    token: int
    log_prob: float
    score: float
    stream: int = 0  # of random numbers


@dataclass(slots=True)
class Offspring:
    """What searches go on with, search by search and best first.

    Attributes:
        searches: each once.
        parents: rows, of each search's children.
        token_ids: of all children in this order, as all that follows.
        log_probs: natural log-probabilities of these tokens.
        scores: of all their generated tokens.
        streams: of random numbers.
    """

    searches: list[Search] = field(default_factory=list)
    parents: list[list[int]] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    streams: list[int] = field(default_factory=list)

    def add(self, search: Search, children: Sequence[Child]) -> None:
        """Let a search go on with `children`."""
        parents, token_ids, log_probs, scores, streams = zip(*children, strict=True)
        self.searches.append(search)
        self.parents.append(list(parents))
        self.token_ids += token_ids
        self.log_probs += log_probs
        self.scores += scores
        self.streams += streams


@dataclass(frozen=True, slots=True)
class RankedTokens:
    """The best tokens of n rows under their rules, best first, and what it takes to score others.

    Attributes:
        token_ids: [n, K].
        scores: what the search ranks by, [n, K]; -inf is banned.
        log_probs: natural log-probabilities under the model alone, [n, K].
        logits: [n, V], where some row has rules or forced tokens.
        normalisers: log of the sum of the exponentials of the logits, [n], of those rows; empty without logits.
        rules: of the rows that have some.
        rule_rows: row -> its number in `rules`.
    """

    token_ids: IntArray
    scores: FloatArray
    log_probs: FloatArray
    logits: FloatArray | None
    normalisers: FloatArray
    rules: processors.Rules | None
    rule_rows: dict[int, int]

    def log_prob(self, row: int, token: int) -> float:
        """Natural log-probability of any token, under the model alone, of a row that has logits."""
        assert self.logits is not None
        return float(self.logits[row, token] - self.normalisers[row])

    def score(self, row: int, token: int) -> float:
        """Score of any token of a row that has rules."""
        assert self.logits is not None
        assert self.rules is not None
        number = self.rule_rows[row]
        scores = processors.score_tokens(self.rules, number, np.array([token]), self.logits[row], self.normalisers[row])
        return float(scores[0])


def rank_tokens(
    candidates: Candidates, forced: BoolArray, table: RowTable, searches: Sequence[Search], masks: MaskTable, eos: int
) -> RankedTokens:
    """The best tokens of each row, under the rules of those that have some.

    Args:
        candidates: what the step returned for n rows.
        forced: which rows have their next token forced, [n].
        table: the state of the rows.
        searches: what each row decodes.
        masks: the tokens that rows ban.
        eos: the end-of-sentence id.
    """
    n = len(searches)
    token_ids, log_probs, logits = candidates.token_ids, candidates.log_probs, candidates.logits
    if log_probs is None:  # no row looks at them
        log_probs = np.zeros(token_ids.shape, np.float32)
    if logits is None:  # no row is special
        return RankedTokens(token_ids, log_probs, log_probs, None, _NO_NUMBERS, None, {})
    normalisers = np.zeros(n, np.float32)
    special = np.flatnonzero(table.positions[:n] < table.special_until[:n])
    normalisers[special] = logits[special, token_ids[special, 0]] - log_probs[special, 0]
    ruled = special[~forced[special]]
    if not ruled.size:
        return RankedTokens(token_ids, log_probs, log_probs, logits, normalisers, None, {})
    rules = _rules(ruled, table, searches, masks, eos)
    needed = np.minimum(table.needed[ruled], token_ids.shape[1])
    processed = processors.process(rules, token_ids[ruled], logits[ruled], normalisers[ruled], needed)
    token_ids, scores, log_probs = token_ids.copy(), log_probs.copy(), log_probs.copy()
    token_ids[ruled], scores[ruled], log_probs[ruled] = processed.token_ids, processed.scores, processed.log_probs
    numbers = {row: number for number, row in enumerate(ruled.tolist())}
    return RankedTokens(token_ids, scores, log_probs, logits, normalisers, rules, numbers)


def _rules(rows: IntArray, table: RowTable, searches: Sequence[Search], masks: MaskTable, eos: int) -> processors.Rules:
    positions = table.positions[rows]
    is_first = positions == table.forced_length[rows]
    return processors.Rules(
        history=table.history[rows],
        lengths=positions + 1,
        on_logits=table.kind[rows] != Kind.BEAM,
        eos_banned=positions < table.eos_from[rows],
        repetition_penalty=table.repetition_penalty[rows],
        ngram_size=table.ngram_size[rows],
        masks=masks.masks,
        row_masks=np.stack([table.mask[rows], np.where(is_first, table.first_mask[rows], 0)], axis=1),
        eos=eos,
        phrases={
            number: phrases.banned(table.tokens(row, int(table.positions[row])))
            for number, row in enumerate(rows.tolist())
            if (phrases := searches[row].phrases)
        },
    )
