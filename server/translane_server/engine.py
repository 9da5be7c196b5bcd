"""The engine: continuous batching on one or more backends, each decoding in a loop on its own thread.

A sentence joins a running batch at its next decoder step and leaves it the moment it ends (iteration-level
scheduling: Yu et al. 2022, https://www.usenix.org/conference/osdi22/presentation/yu). What is decoded for a sentence
never depends on the sentences beside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from translane_server.backend import Backend
from translane_server.job import PendingRequest
from translane_server.ledger import Ledger
from translane_server.observer import EngineObserver, NullObserver
from translane_server.request import Request, Sentence
from translane_server.vocabulary import TargetVocabulary
from translane_server.worker import Worker


class Engine:
    """Decodes requests on `backends`, continuously batched.

    `submit`, `cancel`, `drain` and `stop` may be called from any thread; `on_done` of a request is called exactly
    once, on a thread of the engine's.

    Args:
        backends: run the model, all the same one; what one decodes, the others decode alike. The engine closes them
            when it stops.
        vocabulary: of the target.
        waiting_limit: how many sentences may wait for a row; a request that would exceed it is refused whole.
        encode_tokens: how many padded source tokens a backend encodes at most between two decoder steps.
        observer: is told of every step.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        *backends: Backend,
        vocabulary: TargetVocabulary,
        waiting_limit: int,
        encode_tokens: int,
        observer: EngineObserver | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        assert backends, "an engine has a backend"
        self._backends = backends
        self._smallest = min(backends, key=lambda backend: backend.rows)
        self._clock = clock
        self._ledger = Ledger(len(backends), waiting_limit, encode_tokens)
        self._workers = [
            Worker(f"engine-{number}", backend, self._ledger, vocabulary, observer or NullObserver(), clock)
            for number, backend in enumerate(backends)
        ]

    @property
    def rows(self) -> int:
        """How many hypotheses decode at once at most."""
        return sum(backend.rows for backend in self._backends)

    @property
    def active_rows(self) -> int:
        """How many hypotheses are decoding now."""
        return sum(worker.active_rows for worker in self._workers)

    @property
    def waiting(self) -> int:
        """How many accepted sentences wait for a row."""
        return self._ledger.waiting

    @property
    def failed(self) -> BaseException | None:
        """What ended the engine, if something did: nothing is decoded any more."""
        return self._ledger.failed

    def start(self) -> None:
        """Start decoding."""
        for worker in self._workers:
            worker.start()

    def submit(self, request: Request) -> None:
        """Accept `request`; its `on_done` will be called once.

        Raises:
            QueueFullError: its sentences would exceed the waiting limit.
            UnavailableError: the engine is draining or has stopped.
        """
        assert request.sentences, "a request has sentences"
        for sentence in request.sentences:
            _check(sentence, self._smallest)
        self._ledger.accept(PendingRequest(request, self._clock()))

    def check_room(self, sentences: int) -> None:
        """Raise what `submit` would raise now for a request of so many sentences: cheaper than making one."""
        self._ledger.check_room(sentences)

    def cancel(self, request: Request) -> None:
        """Give up `request`: its rows are free at the next step, and it is answered with CancelledError.

        A request that is answered already stays so.
        """
        self._ledger.cancel(request)

    def drain(self, timeout: float | None = None) -> bool:
        """Refuse new requests and wait until all accepted ones are answered, `timeout` seconds at most.

        Returns:
            Whether all are answered.
        """
        return self._ledger.drain(timeout)

    def stop(self) -> None:
        """Stop decoding, answer what is left with UnavailableError, and close the backends."""
        self._ledger.stop()
        for worker in self._workers:
            worker.join()


def _check(sentence: Sentence, backend: Backend) -> None:
    """The service refuses what cannot be decoded; this finds where it does not."""
    options = sentence.options
    assert 1 <= len(sentence.source_ids) <= backend.source_capacity, "source tokens out of bounds"
    forced, counted = len(sentence.forced_ids), sentence.counted_ids
    assert 0 <= counted <= forced, "counted tokens are forced ones"
    longest = max(forced - counted + options.max_length, forced + min(options.max_length, 1))
    assert 1 <= longest <= backend.target_capacity, "max_length out of bounds"
    assert 1 <= options.rows <= backend.rows, "more beams or hypotheses than rows"
    independent = options.sampling is not None or options.alternatives
    assert independent or options.num_hypotheses <= options.beam_size, "more hypotheses than beams"
    assert backend.has_attention or not options.attention, "this backend has no attention weights"
