"""What the backends of all devices share: the sizes of the rows, encoding in groups, and the warm-up."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NotRequired, TypedDict

import numpy as np
import numpy.typing as npt

from translane_server.core.arrays import FloatArray, Int32Array, IntArray
from translane_server.core.errors import BundleError, StartupError, first_line
from translane_server.runtime.backend import BEST_TOKEN, BEST_TOKEN_ALONE, Candidates, RowMove, StepNeeds, Stops, never
from translane_server.runtime.cache import Cache, CacheShape, Staged
from translane_server.runtime.sessions import Sessions
from translane_server.runtime.shortlist_step import ShortlistStep

_ENCODE_TOKENS = 2048
_WEIGHTS_AT_ONCE = 1 << 13  # bounds the memory of a run of the alignment graph


class RowSizes(TypedDict):
    """How many rows there are, and what fits into each: source tokens, and decoder steps."""

    rows: int
    source_capacity: int
    target_capacity: int
    encode_tokens: NotRequired[int]
    """Most padded source tokens that are encoded ahead, but no less than one whole source; 2048 if it is not given."""


class GraphBackend(ABC):
    """Runs a bundle's graphs over rows of its own. Implements `translane_server.runtime.backend.Backend`.

    Self-attention's keys and values are of NumPy's type `dtype`, those of cross-attention are of `cross_dtype`.
    """

    run_cost: int  # how many padded source tokens cost as much as one more run of the encoder
    steps_at_once: int
    stops_between_steps = True
    _cache: Cache
    _source_lengths: Int32Array  # of every row, [R]
    _shortlists: ShortlistStep | None = None

    def __init__(
        self, sessions: Sessions, sizes: RowSizes, dtype: np.dtype[np.generic], cross_dtype: np.dtype[np.generic]
    ) -> None:
        self._bundle = sessions.bundle
        architecture = self._bundle.manifest.architecture
        self.rows = rows = sizes["rows"]
        self.source_capacity = source_capacity = sizes["source_capacity"]
        self.target_capacity = sizes["target_capacity"]
        self._shape = CacheShape(
            layers=architecture.decoder_layers,
            rows=rows,
            heads=architecture.key_value_heads,
            head_size=architecture.head_size,
            query_width=architecture.heads * architecture.head_size,
            source_capacity=source_capacity,
            target_capacity=self.target_capacity,
            dtype=dtype,
            cross_dtype=cross_dtype,
            cell_size=architecture.cell_size,
        )
        encode_tokens = sizes.get("encode_tokens", _ENCODE_TOKENS)
        self._encode_tokens = max(min(encode_tokens, rows * source_capacity), source_capacity)
        self.has_attention = sessions.alignment is not None
        self._sources: Sequence[Sequence[int]] = ()  # that are encoded ahead, by number
        self._staged: dict[int, Staged] = {}  # and where they are

    @abstractmethod
    def decode_step(
        self, token_ids: IntArray, positions: Int32Array, needs: StepNeeds = BEST_TOKEN, keep: int | None = None
    ) -> Candidates: ...

    @abstractmethod
    def close(self) -> None: ...

    @property
    @abstractmethod
    def _queries(self) -> npt.NDArray[np.generic]:
        """The queries of the steps that were kept last, [target capacity, R, W]: step s is at s mod target capacity."""

    @abstractmethod
    def _attend(self, row: int, queries: npt.NDArray[np.generic]) -> FloatArray:
        """Return the attention weights [T, C] of queries [T, W] over the source of `row`."""

    @abstractmethod
    def _encode_groups(self, sources: Sequence[Sequence[int]], groups: Sequence[Group]) -> None:
        """Run the encoder over each group of `sources`. The output of a group begins at its `start`."""

    def encode_ahead(self, sources: Sequence[Sequence[int]]) -> int:
        lengths = [len(source) for source in sources]
        assert 1 <= min(lengths) <= max(lengths) <= self.source_capacity, "a source is empty or too long"
        groups = group_sources(lengths, self._encode_tokens, self.run_cost)
        self._encode_groups(sources, groups)
        self._staged = {
            number: Staged(group.start + place * group.longest, group.longest, lengths[number])
            for group in groups
            for place, number in enumerate(group.numbers)
        }
        self._sources = sources[: len(self._staged)]
        return len(self._staged)

    def enter(
        self,
        sources: Sequence[int],
        rows: Sequence[int],
        allowed: Sequence[Sequence[int] | None] = (),
    ) -> None:
        staged = [self._staged[source] for source in sources]
        self._cache.enter(staged, rows)
        for source, row in zip(staged, rows, strict=True):
            self._source_lengths[row] = source.length
        if self._shortlists:
            for number, row, tokens in zip(sources, rows, allowed or [None] * len(rows), strict=True):
                self._shortlists.enter(row, self._sources[number], tokens)

    def move_rows(self, moves: Sequence[RowMove]) -> None:
        self._cache.move(moves)
        lengths = self._source_lengths
        for move in moves:
            lengths[move.target] = lengths[move.source]
        if self._shortlists:
            self._shortlists.move_rows(moves)

    def align(self, row: int, first: int, rows: Sequence[int]) -> FloatArray:
        queries = self._queries[(first + np.arange(len(rows))) % self.target_capacity, rows]
        most = max(1, _WEIGHTS_AT_ONCE // int(self._source_lengths[row]))
        return np.concatenate([self._attend(row, queries[at : at + most]) for at in range(0, len(rows), most)])

    def decode_ahead(
        self,
        token_ids: IntArray,
        positions: Int32Array,
        steps: int,
        eos: int | None = None,
        stops: Stops = never,
        keep: int | None = None,
    ) -> IntArray:
        tokens: list[IntArray] = []
        for step in range(steps):
            number = None if keep is None else keep + step
            found = self.decode_step(token_ids, positions + np.int32(step), BEST_TOKEN_ALONE, number)
            token_ids = found.token_ids[:, 0].copy()
            tokens.append(token_ids)
            if eos in token_ids or stops():
                break
        return np.stack(tokens)

    def encode(self, sources: Sequence[Sequence[int]], first_row: int) -> None:
        """Encode B sources, and enter them into the rows `first_row` … `first_row` + B - 1."""
        end = first_row + len(sources)
        while first_row < end:
            encoded = self.encode_ahead(sources[-(end - first_row) :])
            self.enter(range(encoded), range(first_row, first_row + encoded))
            first_row += encoded

    def warm_up(self) -> None:
        """Run all graphs, so that the first request does not wait.

        Raises:
            BundleError: the graphs do not match the manifest.
            DeviceError: the device cannot run the graphs.
        """
        try:
            self._run_graphs()
        except Exception as error:
            if isinstance(error, StartupError):
                raise
            raise self._does_not_run(first_line(error)) from None

    def _does_not_run(self, reason: str) -> StartupError:
        """Return the error to raise when ONNX Runtime fails at warm-up."""
        return BundleError(
            f"model bundle {self._bundle.folder}: its graphs do not run as its manifest describes them: {reason}"
        )

    def _run_graphs(self) -> None:
        ids = self._bundle.manifest.special_ids
        self.encode([[ids.pad] * self.source_capacity], 0)
        self.encode([[ids.pad]] * min(2, self.rows), 0)
        # more candidates than the vocabulary has blocks, if the graph searches the vocabulary by blocks
        candidates = 1 + (self._bundle.manifest.graphs.vocabulary_blocks or 0)
        for rows in (1, self.rows):
            needs = StepNeeds(candidates, logits=rows == 1)
            for kind, keep in ((BEST_TOKEN_ALONE, None), (needs, 0 if self.has_attention else None)):
                self.decode_step(np.full(rows, ids.decoder_start, np.int64), np.zeros(rows, np.int32), kind, keep)
        if self.has_attention:
            self.align(0, 0, [0])


# The output of a run begins at a multiple of this [tokens]. So there are few different starts, and later runs can use
# the bindings of earlier runs.
_ALIGNMENT = 128


@dataclass(frozen=True, slots=True)
class Group:
    """One run of the encoder."""

    numbers: list[int]  # of the sources in the run
    longest: int  # the length that the sources are padded to [tokens]
    start: int  # where the run's output begins [tokens]

    @property
    def end(self) -> int:
        """Where the run's output ends [tokens]."""
        return self.start + len(self.numbers) * self.longest


def group_sources(lengths: Sequence[int], capacity: int, run_cost: int) -> list[Group]:
    """Group the first sources, as many as fit into `capacity` padded tokens in all runs together. None is longer.

    So many tokens of padding as `run_cost` cost as much as one more run.
    """
    groups = _group(lengths, run_cost)
    if groups[-1].end <= capacity:  # most often all fit
        return groups
    fitting = bisect_right(
        range(1, len(lengths)), capacity, key=lambda first: _group(lengths[:first], run_cost)[-1].end
    )
    return _group(lengths[: max(1, fitting)], run_cost)


def _group(lengths: Sequence[int], run_cost: int) -> list[Group]:
    groups: list[Group] = []
    numbers: list[int] = []
    longest = padding = start = 0
    for number in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        padding += longest - lengths[number]
        if padding > run_cost and numbers:
            groups.append(Group(sorted(numbers), longest, start))
            start = -(-groups[-1].end // _ALIGNMENT) * _ALIGNMENT
            numbers = []
        if not numbers:
            longest, padding = lengths[number], 0
        numbers.append(number)
    return [*groups, Group(sorted(numbers), longest, start)]
