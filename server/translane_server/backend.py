"""The seam between the engine and whatever runs the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]
FloatArray = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class RowMove:
    """Copy row `source` over row `target`: its first `target_length` decoded and `source_length` encoded positions."""

    source: int
    target: int
    target_length: int
    source_length: int


@dataclass(frozen=True, slots=True)
class Candidates:
    """The K best next tokens of n rows, best first: ids and natural log-probabilities, both [n, K].

    The arrays belong to the backend and hold until its next step.
    """

    token_ids: IntArray
    log_probs: FloatArray


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

    def encode(self, sources: Sequence[Sequence[int]], first_row: int) -> None:
        """Encode B sources together, and make rows `first_row` … `first_row` + B - 1 theirs."""

    def decode_step(self, token_ids: IntArray, positions: Int32Array) -> Candidates:
        """Feed row i the token `token_ids[i]` as its `positions[i]`-th (from 0): both [n], for the first n rows."""

    def move_rows(self, moves: Sequence[RowMove]) -> None:
        """Copy rows over others, in the order given."""

    def close(self) -> None:
        """Release the model and the rows."""
