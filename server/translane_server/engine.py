"""The engine: continuous batching on one backend, which decodes in a loop on a thread.

A sentence joins a running batch at its next decoder step and leaves it the moment it ends (iteration-level
scheduling: Yu et al. 2022, https://www.usenix.org/conference/osdi22/presentation/yu). What is decoded for a sentence
never depends on the sentences beside it.

This is the engine within one process, for programs that decode without a server; the server has replicas
(`translane_server.replica`), each with the same loop.
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
    """Decodes requests on `backend`, continuously batched.

    `submit`, `cancel` and `stop` may be called from any thread; `on_done` of a request is called exactly once, on the
    engine's thread.

    Args:
        backend: runs the model. The engine closes it when it stops.
        vocabulary: of the target.
        encode_tokens: how many padded source tokens the backend encodes at most between two decoder steps.
        observer: is told of every step.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        vocabulary: TargetVocabulary,
        encode_tokens: int,
        observer: EngineObserver | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._backend = backend
        self._clock = clock
        self._ledger = Ledger(encode_tokens)
        self._worker = Worker("engine", backend, self._ledger, vocabulary, observer or NullObserver(), clock)

    @property
    def active_rows(self) -> int:
        """How many hypotheses are decoding now."""
        return self._worker.active_rows

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
        self._worker.start()

    def submit(self, request: Request) -> None:
        """Accept `request`; its `on_done` will be called once.

        Raises:
            EngineError: decoding has failed.
            UnavailableError: the engine has stopped.
        """
        assert request.sentences, "a request has sentences"
        for sentence in request.sentences:
            _check(sentence, self._backend)
        self._ledger.accept(PendingRequest(request, self._clock()))

    def cancel(self, request: Request) -> None:
        """Give up `request`: its rows are free at the next step, and it is answered with CancelledError.

        A request that is answered already stays so.
        """
        self._ledger.cancel(request)

    def stop(self) -> None:
        """Stop decoding, answer what is left with UnavailableError, and close the backend."""
        self._ledger.stop()
        self._worker.join()


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
