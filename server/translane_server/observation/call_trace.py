"""The trace of the current call, as the rest of the server sees it. Nothing of OpenTelemetry is imported here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

from translane_server.engine.sequence import Sentence, SentenceResult

_NO_IDS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class ModelRun:
    """What one model did for a request. Times are in seconds of `time.perf_counter`.

    Attributes:
        model: the model's name.
        version: the model's version.
        started: when the request was accepted.
        reading: when the model was ready, and began to read the texts.
        submitted: when the sentences were submitted.
        ended: when the answer was ready.
        sentences: n sentences.
        results: the result of each sentence, [n].
    """

    model: str
    version: str
    started: float
    reading: float
    submitted: float
    ended: float
    sentences: Sequence[Sentence]
    results: Sequence[SentenceResult]


class CallTrace(Protocol):
    """The trace of a call that a caller or the sampler may record.

    Attributes:
        is_recorded: whether the sampler records the call. Otherwise spans are dropped, and the ids stay.
        ids: `trace_id` and `span_id`, in hexadecimal digits.
    """

    @property
    def is_recorded(self) -> bool: ...

    @property
    def ids(self) -> Mapping[str, str]: ...

    def add(self, run: ModelRun) -> None:
        """Record what a model did."""

    def refused(self, reason: str) -> None:
        """Record the reason of an error; see `errors`."""

    def end(self, code: str, facts: Mapping[str, Any]) -> None:
        """End the call's span.

        Args:
            code: name of the status code.
            facts: what is known of the call. Texts among them are not recorded.
        """


class Tracer(Protocol):
    """Begins traces."""

    def begin(self, method: str, metadata: Iterable[tuple[str, str | bytes]], peer: str) -> CallTrace:
        """Begin the span of a call that has just arrived.

        Args:
            method: the method's full name, such as `translane.v1.TranslationService/Translate`.
            metadata: keys and values that the caller sent.
            peer: gRPC's name of the connection's other end.
        """


_current: ContextVar[CallTrace | None] = ContextVar("call_trace", default=None)


def set_current_trace(trace: CallTrace) -> None:
    """Set the trace of the current call, in the call's own task."""
    _current.set(trace)


def trace_ids() -> Mapping[str, str]:
    """Return the ids that a log line of the current call has; empty where calls are not traced."""
    trace = _current.get()
    return trace.ids if trace else _NO_IDS
