"""A decoder that tells where its time goes: the server's dispatcher and replica loop, over a backend that is timed.

Seconds are processor time of the replica's thread, and that thread's waits for ONNX Runtime or the GPU. Other waits do
not count, so that other programs change little of what is measured. Reading the clock takes some 2 µs of each step.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from benchmarks.models.vocabulary import target_vocabulary
from translane_server.arrays import Int32Array, IntArray
from translane_server.backend import BEST_TOKEN, Backend, Candidates, RowMove, StepNeeds, Stops, never
from translane_server.bundle import Bundle
from translane_server.devices import Device
from translane_server.dispatch.dispatcher import Dispatcher
from translane_server.local import LocalDecoder
from translane_server.runtime.device_backend import device_backend
from translane_server.runtime.sessions import Sessions
from translane_server.sentence import Sentence
from translane_server.text.tokenizer import load_tokenizer

SOURCE_CAPACITY, TARGET_CAPACITY = 64, 96  # tokens

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


@dataclass
class Times:
    """Where the time of decoding went [seconds], and how much was done.

    Attributes:
        total: from the first call of the backend to the end of the last one.
        runtime: in runs of ONNX Runtime's sessions, or on CUDA in waits for the GPU.
        encode: in the backend, to encode sources and to give rows to them.
        decode: in the backend, for decoder steps.
        move: in the backend, for copies of rows.
        steps: of the decoder.
        rows: summed over the steps.
        reordered_rows: copies of rows within a sentence.
        moved_rows: other copies of rows: to fill a hole, or to begin beams.
    """

    total: float = 0.0
    runtime: float = 0.0
    encode: float = 0.0
    decode: float = 0.0
    move: float = 0.0
    steps: int = 0
    rows: int = 0
    reordered_rows: int = 0
    moved_rows: int = 0


class Clock:
    """Counts a thread's seconds: see the top of this file.

    Attributes:
        runtime: seconds in the calls that were made through `timed`.
    """

    def __init__(self) -> None:
        self.runtime = 0.0
        self._waited = 0.0

    def now(self) -> float:
        """The thread's seconds so far."""
        return time.thread_time() + self._waited

    def timed(self, call: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
        """Make a call count with all the seconds that pass until it returns."""

        def timed_call(*arguments: _Arguments.args, **keywords: _Arguments.kwargs) -> _Result:
            started, computed = time.perf_counter(), time.thread_time()
            result = call(*arguments, **keywords)
            seconds = time.perf_counter() - started
            self._waited += seconds - (time.thread_time() - computed)
            self.runtime += seconds
            return result

        return timed_call

    def watch(self, sessions: Sessions) -> None:
        """Time the runs of the graphs, or on CUDA the waits for the device, of backends that are made from now on."""
        if sessions.cuda:
            sessions.cuda.synchronize = self.timed(sessions.cuda.synchronize)  # type: ignore[method-assign]
            return
        for name in ("encoder", "decoder", "greedy", "alignment"):
            if session := getattr(sessions, name):
                setattr(sessions, name, _TimedSession(session, self))


class _TimedSession:
    """A session of ONNX Runtime whose runs are timed."""

    def __init__(self, session: Any, clock: Clock) -> None:
        self._session = session
        self.run_with_iobinding = clock.timed(session.run_with_iobinding)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


class TimedBackend:
    """A backend whose calls are timed. Closing it leaves the backend open.

    Args:
        backend: is called.
        clock: of the thread that calls it.
    """

    def __init__(self, backend: Backend, clock: Clock) -> None:
        self._backend = backend
        self._clock = clock
        self._times = Times()
        self._begin: float | None = None
        self._end = 0.0
        self._runtime_before = 0.0
        self.rows = backend.rows
        self.source_capacity = backend.source_capacity
        self.target_capacity = backend.target_capacity
        self.has_attention = backend.has_attention
        self.steps_at_once = backend.steps_at_once
        self.stops_between_steps = backend.stops_between_steps

    @property
    def times(self) -> Times:
        """Where the time went."""
        if self._begin is not None:
            self._times.total = self._end - self._begin
            self._times.runtime = self._clock.runtime - self._runtime_before
        return self._times

    def encode_ahead(self, sources: Sequence[Sequence[int]]) -> int:
        """See `Backend.encode_ahead`."""
        started = self._start()
        count = self._backend.encode_ahead(sources)
        self._times.encode += self._since(started)
        return count

    def enter(self, sources: Sequence[int], rows: Sequence[int], allowed: Sequence[Sequence[int] | None] = ()) -> None:
        """See `Backend.enter`."""
        started = self._start()
        self._backend.enter(sources, rows, allowed)
        self._times.encode += self._since(started)

    def decode_step(self, token_ids: IntArray, positions: Int32Array, needs: StepNeeds = BEST_TOKEN) -> Candidates:
        """See `Backend.decode_step`."""
        started = self._start()
        candidates = self._backend.decode_step(token_ids, positions, needs)
        self._decoded(started, 1, len(token_ids))
        return candidates

    def decode_ahead(self, token_ids: IntArray, positions: Int32Array, steps: int, stops: Stops = never) -> IntArray:
        """See `Backend.decode_ahead`."""
        started = self._start()
        found = self._backend.decode_ahead(token_ids, positions, steps, stops)
        self._decoded(started, len(found), len(token_ids))
        return found

    def move_rows(self, moves: Sequence[RowMove]) -> None:
        """See `Backend.move_rows`."""
        started = self._start()
        self._backend.move_rows(moves)
        self._times.move += self._since(started)
        within = sum(not move.source_length for move in moves)
        self._times.reordered_rows += within
        self._times.moved_rows += len(moves) - within

    def close(self) -> None:
        """Leave the backend open: others time it, too."""

    def _start(self) -> float:
        now = self._clock.now()
        if self._begin is None:
            self._begin, self._runtime_before = now, self._clock.runtime
        return now

    def _since(self, started: float) -> float:
        self._end = self._clock.now()
        return self._end - started

    def _decoded(self, started: float, steps: int, rows: int) -> None:
        self._times.decode += self._since(started)
        self._times.steps += steps
        self._times.rows += steps * rows


class TimedDecoder:
    """Decodes on a bundle, and tells where the time went. Close it.

    Args:
        bundle: to decode with.
        rows: of the backend.
        threads: of ONNX Runtime.
        ends: whether the model ends sentences, or only their lengths do.
        device: what decodes.
    """

    def __init__(self, bundle: Bundle, *, rows: int, threads: int, ends: bool, device: Device = "cpu") -> None:
        self._clock = Clock()
        sessions = Sessions(bundle, device=device, threads=threads)
        self._clock.watch(sessions)
        limits = bundle.manifest.limits
        self._backend = device_backend(
            sessions,
            rows=rows,
            source_capacity=min(SOURCE_CAPACITY, limits.source_tokens),
            target_capacity=min(TARGET_CAPACITY, limits.target_tokens),
        )
        self._backend.warm_up()
        self.bundle = bundle
        self.rows = rows
        self.has_attention = self._backend.has_attention
        self.tokenizer = load_tokenizer(bundle)
        self.vocabulary = target_vocabulary(bundle, ends=ends, surfaces=self.tokenizer.target_surfaces)

    def decode(self, sentences: Sequence[Sentence], streams: int = 0) -> Times:
        """Decode each of `sentences` as a request of its own, all at once; the first `streams` of them as streams.

        Raises:
            RequestError: decoding fails.
        """
        timed = TimedBackend(self._backend, self._clock)
        with LocalDecoder(timed, self.vocabulary) as decoder:
            decoder.run(_decode(decoder.dispatcher, sentences, streams))
        return timed.times

    def close(self) -> None:
        """Release the model."""
        self._backend.close()


async def _decode(dispatcher: Dispatcher, sentences: Sequence[Sentence], streams: int) -> None:
    async def read(sentence: Sentence) -> None:
        async for _ in dispatcher.stream([sentence]):
            pass

    streamed = [read(sentence) for sentence in sentences[:streams]]
    await asyncio.gather(*streamed, *(dispatcher.decode([sentence]) for sentence in sentences[streams:]))
