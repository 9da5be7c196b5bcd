"""The seam between the engine and whatever runs the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from translane_server.arrays import FloatArray, Int32Array, IntArray


class RowMove(NamedTuple):
    """Copy row `source` over row `target`: its first `target_length` decoded and `source_length` encoded positions.

    A `source_length` of 0 says that both rows decode the same sentence, whose encoded positions are there already; and
    `start`, that they were fed the same tokens at so many decoded positions, which need not be copied.
    """

    source: int
    target: int
    target_length: int
    source_length: int
    start: int = 0


@dataclass(frozen=True, slots=True)
class StepNeeds:
    """What a step is to return: how many candidates for each row, and whether these other things, too."""

    num_candidates: int = 1
    log_probs: bool = True
    logits: bool = False
    attention: bool = False


@dataclass(frozen=True, slots=True)
class Candidates:
    """What a step returns for n rows. The arrays belong to the backend and hold until its next step.

    Attributes:
        token_ids: the K best next tokens, best first and of equal ones the lowest id first, [n, K]; K is what was
            asked for or the vocabulary's size, if that is less.
        log_probs: their natural log-probabilities, [n, K], where asked for.
        logits: of the whole vocabulary, [n, V], where asked for.
        attention: how much this step attends to each source position, averaged over the heads the bundle names,
            [n, S] with S at least the longest source's length; zero from a row's source length on; where asked for.
    """

    token_ids: IntArray
    log_probs: FloatArray | None = None
    logits: FloatArray | None = None
    attention: FloatArray | None = None


BEST_TOKEN = StepNeeds()  # with its log-probability
BEST_TOKEN_ALONE = StepNeeds(log_probs=False)


class Backend(Protocol):
    """Runs a model over a fixed number of rows, each holding one hypothesis and its keys and values.

    The backend owns the rows' memory, on whichever device it runs. Rows are numbered from 0, and a step always runs
    rows 0 … n-1: keeping the active rows there is the engine's part. All calls come from one thread.
    """

    @property
    def rows(self) -> int:
        """How many rows there are."""

    @property
    def source_capacity(self) -> int:
        """Most source tokens a row holds."""

    @property
    def target_capacity(self) -> int:
        """Most decoding steps a row holds."""

    @property
    def has_attention(self) -> bool:
        """Whether a step can return attention weights."""

    @property
    def steps_at_once(self) -> int:
        """How many greedy steps `decode_ahead` takes at most; 1 where it is not to be called."""

    def encode_ahead(self, sources: Sequence[Sequence[int]]) -> int:
        """Encode the first of `sources`, as many as there is room for, and return how many that are: at least one.

        They are numbered from 0 on, and kept until the next call: for `enter`.
        """

    def enter(self, sources: Sequence[int], rows: Sequence[int]) -> None:
        """Make row `rows[i]` that of the encoded source `sources[i]`."""

    def decode_step(self, token_ids: IntArray, positions: Int32Array, needs: StepNeeds = BEST_TOKEN) -> Candidates:
        """Feed row i the token `token_ids[i]` as its `positions[i]`-th (from 0): both [n], for the first n rows.

        What a row gets does not depend on the other rows, nor on `needs`. A step may overwrite any row from n on.
        """

    def decode_ahead(self, token_ids: IntArray, positions: Int32Array, steps: int) -> IntArray:
        """Take several greedy steps, each of which feeds every row the best token of the step before.

        The first step is fed `token_ids` at `positions`, both [n]. A row goes on after its end-of-sentence token. The
        caller makes sure that every row has room for `steps` more tokens.

        Args:
            token_ids: as for `decode_step`.
            positions: as for `decode_step`.
            steps: from 1 to `steps_at_once`.

        Returns:
            The best tokens of every step, [steps, n]; the array holds until the next step.
        """

    def move_rows(self, moves: Sequence[RowMove]) -> None:
        """Copy rows over others, in the order given; see `RowMove`."""

    def close(self) -> None:
        """Release the model and the rows."""
