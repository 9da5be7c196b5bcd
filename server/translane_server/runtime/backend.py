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

Stops = Callable[[], object]
"""Tells whether the last step is the last one of several: a true value, or a false one."""


def never() -> bool:
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

        A row whose `allowed` is None may use every token; without `allowed`, every row may. For others, the row uses
        the tokens that the model's shortlist has for its source, and these.
        """

    def decode_step(
        self, token_ids: IntArray, positions: Int32Array, needs: StepNeeds = BEST_TOKEN, keep: int | None = None
    ) -> Candidates:
        """Feed each of the first n rows one token, [n], whose position in its row, from 0, is in `positions`, [n].

        The result of a row depends neither on the other rows nor on `needs`. A step may overwrite any row from n on.
        Under the number `keep`, the step is kept for `align`; None keeps nothing.
        """

    @property
    def stops_between_steps(self) -> bool:
        """Whether `decode_ahead` looks at `eos` and `stops` after every step. If not, it makes all steps."""

    def decode_ahead(
        self,
        token_ids: IntArray,
        positions: Int32Array,
        steps: int,
        eos: int | None = None,
        stops: Stops = never,
        keep: int | None = None,
    ) -> IntArray:
        """Run 1 … `steps_at_once` greedy steps; return the best tokens of every one that was made, [steps, n].

        The first step feeds the tokens [n] at the positions [n], from 0. Each step after it feeds every row the best
        token of the step before, until a row has chosen `eos` or `stops` says so. A row continues after its
        end-of-sentence token where that ends no steps. The caller makes sure that every row has room for `steps` more
        tokens.

        The first step is kept under the number `keep`, and those that follow count on from it; None keeps nothing. The
        array is valid until the next step.
        """

    def align(self, row: int, first: int, rows: Sequence[int]) -> FloatArray:
        """Return how much each of T following tokens of a hypothesis attends to each source position, [T, C].

        The row `row` now decodes the hypothesis's source. The step that chose the first token was kept under the number
        `first`, and those of the other tokens follow: at most `target_capacity` - 1 steps were kept since. `rows` are
        the rows in which the tokens were chosen, [T]. The result does not depend on what else was decoded.

        The weights are averaged over the heads that the bundle names. C is the source capacity. They are zero from the
        source's length on.
        """

    def move_rows(self, moves: Sequence[RowMove]) -> None:
        """Make the copies `moves`. No row is a target twice, or both source and target."""

    def close(self) -> None:
        """Release the model and the rows."""
