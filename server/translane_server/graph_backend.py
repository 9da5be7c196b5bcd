"""What the backends of all devices share: the sizes of their rows, and whole calls made of the seam's smaller ones."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from translane_server.backend import (
    BEST_TOKEN,
    BEST_TOKEN_ALONE,
    Candidates,
    Int32Array,
    IntArray,
    RowMove,
    StepNeeds,
)
from translane_server.bundle import Bundle
from translane_server.cache import CacheShape
from translane_server.errors import BundleError, StartupError, first_line


class GraphBackend(ABC):
    """Runs a bundle's graphs over rows of its own; see `translane_server.backend.Backend`.

    Args:
        bundle: whose graphs they are.
        shape: of the rows' memory.
        encode_tokens: most padded source tokens that are encoded ahead; it is at least one whole source.
    """

    def __init__(self, bundle: Bundle, shape: CacheShape, encode_tokens: int) -> None:
        self._bundle = bundle
        self._shape = shape
        self._encode_tokens = max(min(encode_tokens, shape.rows * shape.source_capacity), shape.source_capacity)

    @property
    def rows(self) -> int:
        """See `Backend.rows`."""
        return self._shape.rows

    @property
    def source_capacity(self) -> int:
        """See `Backend.source_capacity`."""
        return self._shape.source_capacity

    @property
    def target_capacity(self) -> int:
        """See `Backend.target_capacity`."""
        return self._shape.target_capacity

    @property
    @abstractmethod
    def has_attention(self) -> bool:
        """See `Backend.has_attention`."""

    @property
    @abstractmethod
    def steps_at_once(self) -> int:
        """See `Backend.steps_at_once`."""

    @abstractmethod
    def encode_ahead(self, sources: Sequence[Sequence[int]]) -> int:
        """See `Backend.encode_ahead`."""

    @abstractmethod
    def enter(self, sources: Sequence[int], rows: Sequence[int]) -> None:
        """See `Backend.enter`."""

    @abstractmethod
    def decode_step(self, token_ids: IntArray, positions: Int32Array, needs: StepNeeds = BEST_TOKEN) -> Candidates:
        """See `Backend.decode_step`."""

    @abstractmethod
    def move_rows(self, moves: Sequence[RowMove]) -> None:
        """See `Backend.move_rows`."""

    @abstractmethod
    def close(self) -> None:
        """See `Backend.close`."""

    def decode_ahead(self, token_ids: IntArray, positions: Int32Array, steps: int) -> IntArray:
        """See `Backend.decode_ahead`."""
        tokens: list[IntArray] = []
        for step in range(steps):
            token_ids = self.decode_step(token_ids, positions + np.int32(step), BEST_TOKEN_ALONE).token_ids[:, 0].copy()
            tokens.append(token_ids)
        return np.stack(tokens)

    def encode(self, sources: Sequence[Sequence[int]], first_row: int) -> None:
        """Encode B sources, and make rows `first_row` … `first_row` + B - 1 theirs."""
        end = first_row + len(sources)
        while first_row < end:
            encoded = self.encode_ahead(sources[-(end - first_row) :])
            self.enter(range(encoded), range(first_row, first_row + encoded))
            first_row += encoded

    def warm_up(self) -> None:
        """Run all graphs at the smallest and the largest size, so that the first request does not wait.

        Raises:
            BundleError: the graphs are not what the manifest says they are.
            DeviceError: the device does not run them.
        """
        try:
            self._run_all_sizes()
        except Exception as error:
            if isinstance(error, StartupError):
                raise
            raise self._does_not_run(first_line(error)) from None

    def _does_not_run(self, reason: str) -> StartupError:
        """What is wrong where ONNX Runtime fails at warm-up."""
        return BundleError(
            f"model bundle {self._bundle.folder}: its graphs do not run as its manifest describes them: {reason}"
        )

    def _run_all_sizes(self) -> None:
        ids = self._bundle.manifest.special_ids
        for sources in (1, min(self.rows, max(1, self._encode_tokens // self.source_capacity))):
            self.encode([[ids.pad] * self.source_capacity] * sources, 0)
        # more candidates than there are blocks of the vocabulary, if it is searched by blocks
        candidates = 1 + (self._bundle.manifest.graphs.vocabulary_blocks or 0)
        for rows in (1, self.rows):
            needs = StepNeeds(candidates, logits=rows == 1, attention=self.has_attention)
            for kind in (BEST_TOKEN_ALONE, needs):
                self.decode_step(np.full(rows, ids.decoder_start, np.int64), np.zeros(rows, np.int32), kind)
