"""The backend on ONNX Runtime and a CPU.

The inputs and outputs of the graphs are bound to the addresses of the first n rows of the cache. So a step allocates no
memory, and it writes new keys and values in place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from translane_server.bundle.manifest import COMPUTED_IN
from translane_server.core.arrays import FloatArray, Int32Array, IntArray
from translane_server.core.errors import DeviceError
from translane_server.runtime.backend import BEST_TOKEN, BEST_TOKEN_ALONE, Candidates, StepNeeds, Stops, never
from translane_server.runtime.buffers import EncodeBuffers, StepBuffers, bind_host
from translane_server.runtime.cache import HostCache
from translane_server.runtime.graph_backend import GraphBackend, Group, RowSizes
from translane_server.runtime.sessions import AllThreads, Sessions
from translane_server.runtime.shortlist_step import ShortlistStep

_MOST_RUNS = 1024  # a binding takes a few kilobytes, and about 30 µs to make
# NumPy finds the best of so few tokens in less time than the graph. With more it gains nothing, and the graph searches
# them on all its threads.
_FEW_TOKENS = 16_384


@dataclass(frozen=True, slots=True)
class _Step:
    """A bound step: how many candidates the graph finds for each row, and where they are after a run."""

    run: Callable[[], None]
    num_candidates: int
    candidates: Candidates


@dataclass(frozen=True, slots=True)
class _Graphs:
    """The graphs of some sessions, inputs of the encoder, and what is bound to both.

    Steps are by number of rows, needs, and whether they are kept.
    """

    sessions: Sessions
    sources: EncodeBuffers
    steps: dict[tuple[int, StepNeeds, bool], _Step] = field(default_factory=dict)


class OrtBackend(GraphBackend):
    """Runs a bundle's graphs over rows in main memory.

    `all_threads` are the graphs on more threads, which run while they may. The results are the same, bit for bit.

    Raises:
        DeviceError: there is too little memory for the rows.
    """

    run_cost = 6  # from 5 (7 million parameters) to 8 (77 million), int8 or fp32
    steps_at_once = 64  # bounds the tokens that are kept until the last step

    def __init__(self, sessions: Sessions, *, all_threads: AllThreads | None = None, **sizes: Unpack[RowSizes]) -> None:
        bundle = sessions.bundle
        graphs = bundle.manifest.graphs
        super().__init__(
            sessions,
            sizes,
            dtype=np.dtype(COMPUTED_IN[bundle.manifest.precision]),
            # Cross-attention's keys and values do not change after the encoder has run, so a smaller type may do.
            cross_dtype=np.dtype(graphs.cross_dtype),
        )
        pad = bundle.manifest.special_ids.pad
        self._graphs = [
            _Graphs(each, EncodeBuffers(self._encode_tokens, pad))
            for each in (sessions, *([all_threads.sessions] if all_threads else ()))
        ]
        self._encoder_run = lru_cache(_MOST_RUNS)(self._bind_encoder)
        self._are_free: Callable[[], bool] = all_threads.are_free if all_threads else lambda: False
        cache = self._cache = self._allocate_cache()
        self._returns_cross = graphs.returns_cross
        self._vocab_size = bundle.manifest.architecture.target_vocab_size
        self._finds_best = self._vocab_size <= _FEW_TOKENS and graphs.searches_on_request
        self._buffers = StepBuffers(self.rows, self._vocab_size, graphs.vocabulary_blocks)
        self._source_lengths = self._buffers.source_lengths
        self._alignment = sessions.alignment
        alignment = bundle.manifest.alignment
        self._keys = cache.cross_keys(alignment.layer) if alignment else None  # that the alignment compares
        self._query = np.zeros((self.rows, self._shape.query_width), self._shape.dtype)  # of the last step
        self._shortlists = self._open_shortlists(sessions)

    def decode_step(
        self, token_ids: IntArray, positions: Int32Array, needs: StepNeeds = BEST_TOKEN, keep: int | None = None
    ) -> Candidates:
        n = len(token_ids)
        if self._shortlists and (limited := self._shortlists.limited(n)):
            candidates = self._decode_limited(token_ids, positions, needs, limited)
        else:
            candidates = self._decode_plain(token_ids, positions, needs, keeps=keep is not None)
        if keep is not None:
            self._keep(n, keep)
        return candidates

    def _decode_plain(self, token_ids: IntArray, positions: Int32Array, needs: StepNeeds, *, keeps: bool) -> Candidates:
        step = self._bound(len(token_ids), needs, keeps=keeps)
        self._buffers.write(token_ids, positions, step.num_candidates)
        step.run()
        return step.candidates

    def decode_ahead(
        self,
        token_ids: IntArray,
        positions: Int32Array,
        steps: int,
        eos: int | None = None,
        stops: Stops = never,
        keep: int | None = None,
    ) -> IntArray:
        n = len(token_ids)
        limited = self._shortlists.limited(n) if self._shortlists else []
        if 0 < len(limited) < n:  # some rows have a list, and some have none
            return super().decode_ahead(token_ids, positions, steps, eos, stops, keep)
        best_tokens = self._shortlists.best_tokens(n) if self._shortlists and limited else None
        step = None if best_tokens else self._bound(n, BEST_TOKEN_ALONE, keeps=keep is not None)
        self._buffers.write(token_ids, positions, step.num_candidates if step else 1)
        tokens: list[list[int]] = []
        while len(tokens) < steps:
            if best_tokens:
                chosen = best_tokens()
            else:
                if step is None or len(self._graphs) > 1:  # other threads may be free now, or not any more
                    step = self._bound(n, BEST_TOKEN_ALONE, keeps=keep is not None)
                step.run()
                chosen = self._buffers.best_tokens(n)
            self._buffers.write_next(chosen)
            if keep is not None:
                self._keep(n, keep + len(tokens))
            tokens.append(chosen)
            if eos in chosen or stops():
                break
        return np.array(tokens)

    def _bound(self, n: int, needs: StepNeeds, *, keeps: bool) -> _Step:
        """Return the step over rows 0 … n-1, on all threads if they are free."""
        graphs = self._graphs[self._are_free()]
        return graphs.steps.get((n, needs, keeps)) or self._prepare(graphs, n, needs, keeps=keeps)

    def _keep(self, n: int, number: int) -> None:
        """Keep the queries of the last step, which had n rows, by views of memory: see `StepBuffers.write_next`."""
        step, size = self._query.nbytes, n * self._query[0].nbytes
        start = number % self.target_capacity * step
        self._kept[start : start + size] = self._query.data.cast("B")[:size]

    @cached_property
    def _queries(self) -> npt.NDArray[np.generic]:
        assert self.has_attention, "the bundle has no attention"
        return np.zeros((self.target_capacity, *self._query.shape), self._query.dtype)  # pages come as they are used

    @cached_property
    def _kept(self) -> memoryview:
        return self._queries.data.cast("B")

    def _attend(self, row: int, queries: npt.NDArray[np.generic]) -> FloatArray:
        assert self._keys is not None, "the bundle has no attention"
        one = slice(row, row + 1)  # source for all queries, because the graph's operators broadcast
        lengths, keys = self._source_lengths[one], self._keys[one]
        inputs = {"alignment_query": queries, "source_lengths": lengths, "cross_key": keys}
        weights: FloatArray = self._alignment.run(None, inputs)[0]
        return weights

    def _decode_limited(
        self, token_ids: IntArray, positions: Int32Array, needs: StepNeeds, limited: Sequence[int]
    ) -> Candidates:
        """Run the step over shortlists, and the plain step too if some rows have no list.

        Each row takes its results from the same graph at every step, so they do not depend on the other rows.
        """
        assert self._shortlists
        n, count = len(token_ids), min(needs.num_candidates, self._vocab_size)
        plain = None if len(limited) == n else self._decode_plain(token_ids, positions, needs, keeps=False)
        self._buffers.write(token_ids, positions, count)
        found = self._shortlists.run(n, replace(needs, num_candidates=count))
        if plain is None:
            return found
        for ours, theirs in (
            (found.token_ids, plain.token_ids),
            (found.log_probs, plain.log_probs),
            (found.logits, plain.logits),
        ):
            if ours is not None and theirs is not None:
                theirs[limited] = ours[limited]
        return plain

    def _prepare(self, graphs: _Graphs, n: int, needs: StepNeeds, *, keeps: bool) -> _Step:
        """Bind a step over rows 0 … n-1, and keep the binding until the step buffers move."""
        assert 1 <= n <= self.rows, "no such number of rows"
        assert needs.num_candidates >= 1, "no candidates"
        available = replace(needs, num_candidates=min(needs.num_candidates, self._vocab_size))
        sessions = graphs.sessions
        # The greedy graph returns no query. Only bundles for CUDA have it, whose graphs find one candidate or more.
        is_greedy = bool(sessions.greedy) and available == BEST_TOKEN_ALONE and not keeps
        # Where NumPy finds the best token, the graph is asked for nothing. The logits are bound in any case.
        finds_best = available == BEST_TOKEN_ALONE and not sessions.greedy and self._finds_best
        of_graph = StepNeeds(0, log_probs=False) if finds_best else available
        if self._buffers.reserve(available):
            for each in self._graphs:
                each.steps.clear()
        session = sessions.greedy if is_greedy else sessions.decoder
        run = sessions.bound_run(session, self._bind(session, n, of_graph, keeps=keeps))
        if finds_best:
            run = self._buffers.finding_best(run, n)
        step = _Step(run, of_graph.num_candidates, self._buffers.read(n, available))
        graphs.steps[n, needs, keeps] = step
        return step

    def close(self) -> None:
        for graphs in self._graphs:
            graphs.steps.clear()
        self._encoder_run.cache_clear()
        if self._shortlists:
            self._shortlists.clear()

    def _run_graphs(self) -> None:
        are_free = self._are_free
        for place in range(len(self._graphs)):
            self._are_free = (lambda: True) if place else (lambda: False)
            super()._run_graphs()
        self._are_free = are_free
        if self._shortlists:
            self._run_shortlists(self._shortlists)

    def _run_shortlists(self, shortlists: ShortlistStep) -> None:
        ids = self._bundle.manifest.special_ids
        for rows in (1, self.rows):
            for row in range(rows):
                shortlists.enter(row, [ids.pad], ())
            needs = replace(BEST_TOKEN, logits=rows == 1)
            self.decode_step(np.full(rows, ids.decoder_start, np.int64), np.zeros(rows, np.int32), needs)
        for row in range(self.rows):
            shortlists.enter(row, [], None)

    def _allocate_cache(self) -> HostCache:
        try:
            return HostCache(self._shape, self._encode_tokens)
        except (OSError, OverflowError):  # the latter for sizes beyond any memory
            raise DeviceError(
                f"device cpu: there is no memory for {self._shape.rows} rows of"
                f" {self._shape.source_capacity} source and {self._shape.target_capacity} target tokens"
            ) from None

    def _open_shortlists(self, sessions: Sessions) -> ShortlistStep | None:
        if sessions.shortlist is None:
            return None
        session, shortlist = sessions.shortlist
        ids = self._bundle.manifest.special_ids
        return ShortlistStep(
            session,
            sessions.bound_run,
            shortlist,
            rows=self.rows,
            vocab_size=self._vocab_size,
            special=[id_ for id_ in (ids.unk, ids.bos, ids.eos) if id_ < self._vocab_size],
            threads=sessions.threads,
            bind_rows=partial(self._bind_limited, session),
        )

    def _encode_groups(self, sources: Sequence[Sequence[int]], groups: Sequence[Group]) -> None:
        for group in groups:
            place = int(self._are_free())
            self._graphs[place].sources.write([sources[number] for number in group.numbers], group.longest)
            self._encoder_run(place, len(group.numbers), group.longest, group.start)()

    def _bind_encoder(self, place: int, sources: int, longest: int, start: int) -> Callable[[], None]:
        """Bind a run of the graphs `place` over so many sources, padded to `longest`; the output begins at `start`."""
        graphs = self._graphs[place]
        binding = graphs.sessions.encoder.io_binding()
        graphs.sources.bind_inputs(binding, sources, longest)
        shape = (sources, self._shape.heads, longest, self._shape.head_size)
        for name, pointer in zip(self._shape.names("cross"), self._cache.staging_pointers(start), strict=True):
            binding.bind_output(name, "cpu", 0, self._shape.cross_dtype, shape, pointer)
        return graphs.sessions.bound_run(graphs.sessions.encoder, binding)

    def _bind(self, session: Any, n: int, needs: StepNeeds, *, keeps: bool) -> Any:
        """Bind a step over rows 0 … n-1 to the addresses of its inputs and outputs."""
        binding = session.io_binding()
        self._buffers.bind_inputs(session, binding, n, needs)
        self._buffers.bind_outputs(session, binding, n, needs)
        self._bind_rows(binding, n, keeps=keeps)
        return binding

    def _bind_limited(self, session: Any, binding: Any, n: int) -> None:
        """Bind what a step over shortlists has in common with the plain step."""
        self._buffers.bind_inputs(session, binding, n, BEST_TOKEN)
        self._bind_rows(binding, n, keeps=self.has_attention)

    def _bind_rows(self, binding: Any, n: int, *, keeps: bool) -> None:
        """Bind the caches of rows 0 … n-1, and the query of the alignment if it is kept."""
        if keeps:
            bind_host(binding.bind_output, "alignment_query", self._query, (n, self._shape.query_width))
        shape = self._shape
        for kind, dtype, pointers, returned in (
            ("self", shape.dtype, self._cache.self_pointers(), True),
            ("cross", shape.cross_dtype, self._cache.cross_pointers(), self._returns_cross),
        ):
            block = (n, *shape.of_row(kind))  # [n, H, C, D]
            for name, pointer in zip(shape.names(kind), pointers, strict=True):
                binding.bind_input(name, "cpu", 0, dtype, block, pointer)
                if returned:
                    binding.bind_output(f"present_{name}", "cpu", 0, dtype, block, pointer)
