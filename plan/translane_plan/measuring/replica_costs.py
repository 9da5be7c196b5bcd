"""What a replica works: steps by rows, encoder runs by tokens, and the loop around them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import cycle, islice
from typing import NamedTuple

import numpy as np

from translane_plan.measuring.driven_loop import Round, run_rounds
from translane_plan.measuring.samples import Samples
from translane_plan.profile import Curve, Length, ReplicaCosts
from translane_server.bundle import Bundle
from translane_server.devices import Device
from translane_server.runtime.device_backend import device_backend
from translane_server.runtime.graph_backend import GraphBackend
from translane_server.runtime.sessions import Sessions
from translane_server.sentence import Sentence
from translane_server.vocabulary import TargetVocabulary

ROWS = (1, 2, 4, 8, 16, 32, 64)
_NEVER = -1  # an end of the sentence that no model predicts: only their lengths end sentences
_TOGETHER = 32  # sentences that are decoded together for their lengths
_LEAST_PASSES, _MOST_PASSES = 3, 400


class _Cell(NamedTuple):
    """Sentences that are decoded together: how many, and the tokens of their sources and translations."""

    rows: int
    source: int
    target: int

    @property
    def keys(self) -> float:
        """The keys that attention reads for a row of a step, in the mean."""
        return self.source + (self.target + 1) / 2


_SHORT = (12, 16)  # source and target tokens
_LONG = (48, 60)
_ROWS_OF_LONG = 16


class ReplicaMeter:
    """Measures a replica of a model. Close it.

    Args:
        bundle: the model.
        device: what runs it.
        threads: threads of the replica.
        samples: the sentences to measure with.

    Attributes:
        counts_processor_time: whether costs are processor time, and not time on the clock.
    """

    def __init__(self, bundle: Bundle, device: Device, threads: int, samples: Samples) -> None:
        self._bundle = bundle
        self._sessions = Sessions(bundle, device=device, threads=threads)
        self._samples = samples
        # Processor time of the thread is what other programs disturb least. But more threads, or a GPU, work beside it.
        self.counts_processor_time = device == "cpu" and threads == 1
        self._clock: Callable[[], float] = time.thread_time if self.counts_processor_time else time.perf_counter

    @property
    def run_cost(self) -> int:
        """Padded source tokens that cost as much as one more run of the encoder."""
        return self._run_cost

    def close(self) -> None:
        """Give the model's memory back."""
        self._sessions.close()

    def lengths(self) -> tuple[Length, ...]:
        """The lengths of the samples and of their translations."""
        sentences = [sample.sentence for sample in self._samples.samples]
        rounds = [sentences[first : first + _TOGETHER] for first in range(0, len(sentences), _TOGETHER)]
        ids = self._bundle.manifest.special_ids
        found: list[Length] = []
        for decoded, ordered in zip(self._run(iter(rounds), ids.eos), rounds, strict=True):
            found += [
                Length(len(sentence.source_ids), max(1, decoded.targets[place]))
                for place, sentence in enumerate(ordered)
            ]
        return tuple(found)

    def costs(self, seconds: float) -> ReplicaCosts:
        """Measure for some seconds. The costs of waking are not measured here, and are 0."""
        cells = self._cells()
        rounds = self._passes([self._sentences(cell) for cell in cells], time.perf_counter() + seconds)
        done = list(self._run(rounds, _NEVER))[len(cells) :]  # the first pass warms up
        return costs_of(cells, [done[place :: len(cells)] for place in range(len(cells))])

    def _cells(self) -> list[_Cell]:
        tokens = self._samples.limits.tokens
        short, long = ((min(source, tokens.source), min(target, tokens.target)) for source, target in (_SHORT, _LONG))
        return [*(_Cell(rows, *short) for rows in ROWS), _Cell(_ROWS_OF_LONG, *long)]

    def _passes(self, cells: Sequence[Sequence[Sentence]], end: float) -> Iterator[Sequence[Sentence]]:
        for number in range(_MOST_PASSES):
            if number > _LEAST_PASSES and time.perf_counter() > end:
                return
            yield from cells

    def _sentences(self, cell: _Cell) -> list[Sentence]:
        """Sentences of given lengths, of the samples' tokens."""
        model = self._samples.samples[0].sentence
        tokens = cycle([id_ for sample in self._samples.samples for id_ in sample.sentence.source_ids])
        forced = min(len(model.forced_ids), cell.target - 1)
        options = replace(model.options, max_length=cell.target - forced)
        return [model._replace(source_ids=list(islice(tokens, cell.source)), options=options) for _ in range(cell.rows)]

    def _run(self, rounds: Iterator[Sequence[Sentence]], eos: int) -> Iterator[Round]:
        backend = self._backend()
        self._run_cost = backend.run_cost
        start = self._bundle.manifest.special_ids.decoder_start
        return run_rounds(backend, TargetVocabulary(start, eos, ()), rounds, self._clock)

    def _backend(self) -> GraphBackend:
        tokens = self._samples.limits.tokens
        backend = device_backend(
            self._sessions, rows=ROWS[-1], source_capacity=tokens.source, target_capacity=tokens.target
        )
        backend.warm_up()
        return backend


def costs_of(cells: Sequence[_Cell], rounds: Sequence[Sequence[Round]]) -> ReplicaCosts:
    """The costs that explain the rounds of each cell.

    Args:
        cells: of `ROWS` rows and short sentences, and last of long ones.
        rounds: rounds of each cell.
    """
    steps = [statistics.median(each.step for each in of_cell) for of_cell in rounds]
    encodes = [statistics.median(each.encode for each in of_cell) for of_cell in rounds]
    rests = [statistics.median(each.rest for each in of_cell) for of_cell in rounds]
    *short, long = cells
    like = next(place for place, cell in enumerate(short) if cell.rows == long.rows)
    more = long.rows * (long.keys - short[like].keys)
    key = max(0.0, (steps[-1] - steps[like]) / more) if more else 0.0
    turn, sentence = _line([cell.rows for cell in short], rests[:-1])
    tokens = [cell.rows * cell.source for cell in short]
    return ReplicaCosts(
        steps=Curve(
            counts=tuple(cell.rows for cell in short),
            seconds=tuple(
                max(step / 10, step - key * cell.rows * cell.keys) for cell, step in zip(short, steps, strict=False)
            ),
        ),
        key=key,
        encodes=Curve(counts=tuple(tokens), seconds=tuple(encodes[:-1])),
        turn=turn,
        sentence=sentence,
        wake=0.0,
    )


def _line(counts: Sequence[int], seconds: Sequence[float]) -> tuple[float, float]:
    """The line through the seconds of some counts: its value at 0 and its slope, both ≥ 0; relative errors count."""
    found = np.maximum(np.array(seconds), 1e-9)
    lines = np.stack([np.ones(len(counts)), np.array(counts, float)], axis=1) / found[:, None]
    base, slope = np.linalg.lstsq(lines, np.ones(len(counts)), rcond=None)[0]
    if base < 0:
        return 0.0, float(np.mean(found / np.array(counts)))
    if slope < 0:
        return float(np.mean(found)), 0.0
    return float(base), float(slope)
