"""The interface between the running batch and the device that runs the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from translane_server.core.arrays import FloatArray, Int32Array, IntArray


class RowMove(NamedTuple):
    """Copy row `source` over row `target`: its first `target_length` decoded and `source_length` encoded positions.

    A `source_length` of 0 means that both rows decode the same sentence. The encoded positions are then equal already.
    The first `start` decoded positions of the two rows are equal too, and need not be copied.
    """

    source: int
    target: int
    target_length: int
    source_length: int
    start: int = 0


@dataclass(frozen=True, slots=True)
class StepNeeds:
    """The results that a decode step has to return."""

    num_candidates: int = 1  # for each row
    log_probs: bool = True  # whether to return those of the candidates
    logits: bool = False  # whether to return those of the whole vocabulary


@dataclass(frozen=True, slots=True)
class Candidates:
    """The results of a decode step for n rows. The arrays belong to the backend and are valid until its next step.

    K is `num_candidates`, or the size of the vocabulary if that is smaller.
    """

    token_ids: IntArray  # the best next tokens, best first, [n, K]; the lower id comes first between equal logits
    log_probs: FloatArray | None = None  # natural log-probabilities of `token_ids`, [n, K], if requested
    logits: FloatArray | None = None  # logits of the whole vocabulary, [n, V], if requested


BEST_TOKEN = StepNeeds()  # with its log-probability
BEST_TOKEN_ALONE = StepNeeds(log_probs=False)

Align = Callable[[int, int, Sequence[int]], FloatArray]
"""`Backend.align`."""

Stops = Callable[[Sequence[int]], bool]
"""Whether a step that chose these tokens, [n], is the last one of several."""


def never(token_ids: Sequence[int]) -> bool:  # noqa: ARG001 it is a `Stops`
    """Make all steps."""
    return False


class Backend(Protocol):
    """Runs a model over a fixed number of rows. Each row holds one hypothesis with its keys and values.

    The backend owns the memory of the rows, on its device. Rows are numbered from 0. A step always runs rows 0 … n-1,
    so the running batch keeps the active rows there. All calls come from one thread.
    """

    @property
    def rows(self) -> int:
        """Number of rows."""

    @property
    def source_capacity(self) -> int:
        """Maximum number of source tokens in a row."""

    @property
    def target_capacity(self) -> int:
        """Maximum number of decode steps of a row."""

    @property
    def has_attention(self) -> bool:
        """Whether there are attention weights for `align`."""

    @property
    def steps_at_once(self) -> int:
        """Maximum number of greedy steps in a `decode_ahead`; 1 if the backend does not support it."""

    def encode_ahead(self, sources: Sequence[Sequence[int]]) -> int:
        """Encode as many of the first `sources` as there are slots for, and return their number (≥ 1).

        The encoded sources are numbered from 0. The backend keeps them for `enter` until the next call.
        """

    def enter(self, sources: Sequence[int], rows: Sequence[int], allowed: Sequence[Sequence[int] | None] = ()) -> None:
        """Put the encoded source `sources[i]` into row `rows[i]`.

        Args:
            sources: numbers of encoded sources.
            rows: the row of each source.
            allowed: None for a row that may use every token. For others, the row uses the tokens that the model's
                shortlist has for its source, and these. Empty stands for None for every row.
        """

    def decode_step(
        self, token_ids: IntArray, positions: Int32Array, needs: StepNeeds = BEST_TOKEN, keep: int | None = None
    ) -> Candidates:
        """Feed each of the first n rows one token.

        The result of a row depends neither on the other rows nor on `needs`. A step may overwrite any row from n on.

        Args:
            token_ids: the token that each row is fed, [n].
            positions: the position of that token in its row, from 0, [n].
            needs: the results to return.
            keep: the number under which the step is kept for `align`. None keeps nothing.
        """

    @property
    def stops_between_steps(self) -> bool:
        """Whether `decode_ahead` asks `stops` after every step. If not, it makes all steps."""

    def decode_ahead(
        self, token_ids: IntArray, positions: Int32Array, steps: int, stops: Stops = never, keep: int | None = None
    ) -> IntArray:
        """Run several greedy steps. Each step after the first feeds every row the best token of the step before.

        A row continues after its end-of-sentence token. The caller makes sure that every row has room for `steps` more
        tokens.

        Args:
            token_ids: the token that each row is fed first, [n].
            positions: the position of that token in its row, from 0, [n].
            steps: number of steps, 1 … `steps_at_once`.
            stops: whether the step that chose these tokens [n] is the last one.
            keep: the number under which the first step is kept for `align`. Those that follow count on from it. None
                keeps nothing.

        Returns:
            The best tokens of every step that was made, [steps, n]. The array is valid until the next step.
        """

    def align(self, row: int, first: int, rows: Sequence[int]) -> FloatArray:
        """Return how much each of T following tokens of a hypothesis attends to each source position.

        The steps that chose these tokens have been kept, and at most `target_capacity` - 1 steps since the first of
        them. The result does not depend on what else was decoded.

        Args:
            row: a row that now decodes the hypothesis's source.
            first: the number under which the step that chose the first token was kept. Those of the other tokens
                follow.
            rows: the row in which each token was chosen, [T].

        Returns:
            Attention weights, averaged over the heads that the bundle names, [T, C] with the source capacity C. They
            are zero from the source's length on.
        """

    def move_rows(self, moves: Sequence[RowMove]) -> None:
        """Make the copies `moves`, in their order."""

    def close(self) -> None:
        """Release the model and the rows."""
