"""The engine loop: admit sentences, run a decode step, update the batch.

A sentence waits in two places here: in the queue, and encoded. An encoded sentence has a slot in the backend, and waits
for its rows.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections import abc, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Protocol

import numpy as np

from translane_server.core.errors import is_about_memory
from translane_server.engine.running_batch import RunningBatch
from translane_server.engine.search import Search, returned_hypotheses
from translane_server.engine.sequence import (
    EngineInput,
    EngineOutput,
    SentenceResult,
    Sequence,
    TargetVocabulary,
)
from translane_server.runtime.backend import Backend, RowMove, Stops

_log = logging.getLogger(__name__)

_MOST_STEPS = 64  # most steps whose measurements wait for an output


class ServerGoneError(Exception):
    """The server has closed the connection or has ended."""


class ServerLink(Protocol):
    """The server as the loop sees it."""

    @property
    def has_arrivals(self) -> Stops:
        """Tells whether bytes have arrived that `inputs` has not read."""

    def inputs(self, *, wait: bool) -> list[EngineInput]:
        """The inputs that have arrived. With `wait`, first wait for bytes.

        Raises:
            ServerGoneError: the server has closed the connection.
        """

    def put(self, output: EngineOutput) -> None:
        """Send an output. Raises ServerGoneError if the server has closed the connection."""


@dataclass(eq=False)
class EngineLoop:
    """Decodes the sequences that the server sends, with a backend that the caller closes."""

    backend: Backend
    server: ServerLink
    vocabulary: TargetVocabulary
    # called with True before the loop has work, and with False when it has none
    at_work: Callable[[bool], None] = lambda _works: None
    clock: Callable[[], float] = time.perf_counter  # monotonic [seconds], and equal to the server's

    def __post_init__(self) -> None:
        self._rows = self.backend.rows
        self._steps_at_once = self.backend.steps_at_once
        self._stops_between_steps = self.backend.stops_between_steps
        self._batch = self._empty_batch()
        self._queue: list[tuple[int, int, Sequence]] = []  # a heap of (-priority, arrival, sequence)
        self._arrivals = itertools.count()
        self._encoded: deque[tuple[Sequence, int]] = deque()  # sequences, and their sources' slots in the backend
        self._encode_seconds = 0.0  # duration of the last encoder run
        self._newcomers: list[Search] = []  # searches without a token
        self._entering: list[Sequence] = []  # sequences whose searches begin
        self._ended: list[Search] = []  # searches that the last step has ended, until their results are there
        self._output = EngineOutput()  # what the server is told next
        self._must_answer = False

    def run(self) -> bool:
        """Decode until the server closes the connection.

        If a step fails, its sentences are reported as failed, and the loop goes on. If the model does not run any more,
        the loop ends, and the server notices this when the connection closes. If the loop ends for lack of memory, the
        server is told so before.

        Returns:
            Whether the server has ended the loop.
        """
        try:
            while True:
                self._exchange()
                self._step()
        except ServerGoneError:
            return True
        except Exception as error:  # noqa: BLE001 - the server answers all callers after any error
            _log.exception("the replica failed")
            if is_about_memory(error):
                with suppress(ServerGoneError, MemoryError):
                    self.server.put(EngineOutput(is_starved=True))
            return False

    def _exchange(self) -> None:
        """Send an output if there is news, and take inputs. Wait for inputs if there is nothing to decode."""
        idle = not (self._batch.reserved or self._encoded or self._queue)
        output = self._output
        steps = len(output.stats.steps)
        news = output.ended or output.dropped or output.failed or output.committed or self._must_answer
        if news or steps > _MOST_STEPS or (idle and steps):
            self._output, self._must_answer = EngineOutput(), False
            self.server.put(output)
        if idle:
            self.at_work(False)
        for told in self.server.inputs(wait=idle):
            self._must_answer |= told.answer
            for sequence in told.sequences:
                heappush(self._queue, (-sequence.priority, next(self._arrivals), sequence))
            if told.cancelled:
                self._cancel(set(told.cancelled))
        if idle:
            self.at_work(True)

    def _cancel(self, numbers: set[int]) -> None:
        """Give up the sequences of these numbers that have not ended."""
        dropped = self._output.dropped
        dropped += [each.number for _, _, each in sorted(self._queue) if each.number in numbers]
        dropped += [each.number for each, _ in self._encoded if each.number in numbers]
        dropped += self._batch.drop(numbers)
        self._queue = [entry for entry in self._queue if entry[2].number not in numbers]
        heapify(self._queue)
        self._encoded = deque(each for each in self._encoded if each[0].number not in numbers)
        self._newcomers = [search for search in self._newcomers if search.sequence.number not in numbers]

    def _step(self) -> None:
        """Admit sentences, close holes, and decode: every active row gets a token, and ended sentences leave."""
        batch = self._batch
        try:
            if batch.reserved < self._rows and (self._encoded or self._queue):
                self._admit()
            if batch.holes and (moves := batch.compact()):
                self._move(moves)
            if batch.reserved:
                self._decode()
        except Exception as error:  # noqa: BLE001 any error of the runtime, such as a lack of memory
            lost = dict.fromkeys([*self._entering, *[search.sequence for search in self._ended], *batch.sequences])
            self._batch, self._newcomers, self._ended, self._entering = self._empty_batch(), [], [], []
            encoded, self._encoded = self._encoded, deque()
            for sequence, _ in encoded:  # they are encoded again
                heappush(self._queue, (-sequence.priority, next(self._arrivals), sequence))
            self._fail([*lost], error, decoder=True)

    def _fail(self, sequences: abc.Sequence[Sequence], error: Exception, *, decoder: bool) -> None:
        """Report the sequences of a step that has failed, and run the model over one that cannot be at fault.

        Any error of that run shows that the device is broken, or that there is no memory, and ends the loop.
        """
        _log.error("a step of %d sentences has failed", len(sequences), exc_info=error)
        self._output.failed += [sequence.number for sequence in sequences]
        backend, vocabulary = self.backend, self.vocabulary
        backend.encode_ahead([[vocabulary.eos]])
        if decoder:
            backend.enter([0], [0])
            backend.decode_step(np.array([vocabulary.decoder_start]), np.zeros(1, np.int32))

    def _empty_batch(self) -> RunningBatch:
        backend = self.backend
        return RunningBatch(backend.rows, backend.target_capacity, self.vocabulary, backend.align)

    def _admit(self) -> None:
        """Give free rows to waiting sentences, encoded sentences first.

        When all encoded sentences have rows, the next sentences are encoded together: as many as there are slots for,
        even if there are fewer free rows. This costs less than to encode each sentence when a row becomes free. But a
        sentence of higher priority that comes later must wait for them. The backend bounds the work: it encodes once
        between two steps.
        """
        if self._encoded:
            self._enter()
        if self._queue and not self._encoded:
            first = self._queue[0][2].sentence
            if self._batch.reserved + first.options.rows <= self._rows:
                self._encode()
                self._enter()

    def _encode(self) -> None:
        queue, started = self._queue, self.clock()
        try:
            count = self.backend.encode_ahead([sequence.sentence.source_ids for _, _, sequence in sorted(queue)])
        except Exception as error:  # noqa: BLE001 any error of the runtime; the sentences that decode are not touched
            self._fail([heappop(queue)[2] for _ in range(min(len(queue), self._rows))], error, decoder=False)
            return
        self._encode_seconds = self.clock() - started
        self._encoded += [(heappop(queue)[2], source) for source in range(count)]
        tokens = sum([len(sequence.sentence.source_ids) for sequence, _ in self._encoded])
        self._output.stats.encodes.append((self._encode_seconds, tokens))

    def _enter(self) -> None:
        """Give rows to the first encoded sentences, as many as fit."""
        encoded, sequences, sources = self._encoded, [], []
        free = self._rows - self._batch.reserved
        while encoded and (free := free - encoded[0][0].sentence.options.rows) >= 0:
            sequence, source = encoded.popleft()
            sequences.append(sequence)
            sources.append(source)
        if not sequences:
            return
        self._entering = sequences
        searches = self._batch.add(sequences)
        self._entering = []
        limits = any(search.options.shortlist for search in searches)
        allowed = [sequence.sentence.allowed_ids for sequence in sequences] if limits else ()
        self.backend.enter(sources, [search.rows[0] for search in searches], allowed)
        now = self.clock()
        admitted_at = now - self._encode_seconds
        for search in searches:
            search.admitted_at, search.entered_at = admitted_at, now
        self._output.stats.queue_times.extend([admitted_at - sequence.submitted_at for sequence in sequences])
        self._newcomers += searches

    def _decode(self) -> None:
        batch, output, backend = self._batch, self._output, self.backend
        token_ids, positions = batch.inputs
        steps = self._steps_ahead() if self._steps_at_once > 1 else 1
        started = self.clock()
        several = steps > 1
        if several:
            decoded = backend.decode_ahead(
                token_ids, positions, steps, self.vocabulary.eos, self.server.has_arrivals, batch.keep
            )
            steps = len(decoded)
        else:
            candidates = backend.decode_step(token_ids, positions, batch.needs, batch.keep)
        seconds = (self.clock() - started) / steps
        output.stats.steps.extend([(seconds, len(token_ids))] * steps)
        update = batch.advance_ahead(decoded) if several else batch.advance(candidates)
        self._ended = update.done
        now = self.clock()
        if self._newcomers:
            first = started + seconds if several else now
            output.stats.first_token_times.extend([first - search.sequence.submitted_at for search in self._newcomers])
            self._newcomers = []
        if update.moves:
            self._move(update.moves)
        for search, hypotheses in [(search, returned_hypotheses(search, backend.align)) for search in self._ended]:
            timing = search.timing(now, batch.steps, batch.row_steps)
            output.ended.append((search.sequence.number, SentenceResult(hypotheses, timing)))
        self._ended = []
        for search, tokens in batch.committed() if batch.streamed else ():
            output.committed.append((search.sequence.number, tokens))

    def _steps_ahead(self) -> int:
        """The number of steps to run at once.

        There are several only if no sentence can join before the last one: none waits, or all rows are in use and the
        backend stops when a sentence ends.
        """
        may_join = not self._stops_between_steps or self._batch.reserved < self._rows
        if may_join and (self._encoded or self._queue):
            return 1
        return max(1, min(self._steps_at_once, self._batch.greedy_steps))

    def _move(self, moves: abc.Sequence[RowMove]) -> None:
        started = self.clock()
        self.backend.move_rows(moves)
        self._output.stats.moves.append((self.clock() - started, len(moves)))
