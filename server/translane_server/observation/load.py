"""How busy the server and its models are. The figures that only grow give rates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from translane_server.observation.metrics import Metrics, ModelMetrics


@dataclass(frozen=True)
class ModelLoad:
    """The load of a model. Limits are 0 while the model is not loaded.

    Attributes:
        rows_busy: rows that decode.
        rows_limit: rows of all replicas.
        sentences_waiting: sentences that wait for a row.
        sentences_waiting_limit: most sentences that may wait.
        memory_bytes: memory of the replicas when the model was loaded; 0 if it is not known.
        requests: requests that were translated.
        request_seconds: time that these requests took together [seconds].
        sentences: sentences that entered the batch.
        source_tokens: tokens encoded.
        generated_tokens: tokens of the hypotheses that were returned.
    """

    rows_busy: int = 0
    rows_limit: int = 0
    sentences_waiting: int = 0
    sentences_waiting_limit: int = 0
    memory_bytes: int = 0
    requests: int = 0
    request_seconds: float = 0.0
    sentences: int = 0
    source_tokens: int = 0
    generated_tokens: int = 0

    @classmethod
    def of(cls, metrics: ModelMetrics) -> ModelLoad:
        """Return the load of the model whose series are `metrics`."""
        decoder = metrics.decoder
        return cls(
            rows_busy=decoder.active_rows if decoder else 0,
            rows_limit=decoder.rows if decoder else 0,
            sentences_waiting=decoder.waiting if decoder else 0,
            sentences_waiting_limit=decoder.waiting_limit if decoder else 0,
            memory_bytes=metrics.memory,
            requests=metrics.ok.count,
            request_seconds=metrics.ok.sum,
            sentences=metrics.queue.count,
            source_tokens=metrics.source_tokens,
            generated_tokens=metrics.generated_tokens.value,
        )


@dataclass(frozen=True)
class ServerLoad:
    """The load of a server.

    Attributes:
        open_calls: calls that are open.
        open_calls_limit: most calls that may be open.
        refused: requests that were refused before decoding.
        models: the load of each model, by name.
    """

    open_calls: int
    open_calls_limit: int
    refused: int
    models: Mapping[str, ModelLoad]

    @classmethod
    def of(cls, metrics: Metrics) -> ServerLoad:
        """Return the load of the server with these metrics."""
        models = list(metrics.models.items())  # a copy: a new model is checked on another thread, and joins there
        return cls(
            open_calls=metrics.open_calls(),
            open_calls_limit=metrics.open_calls_limit,
            refused=sum(int(sample.value) for family in metrics.rejected.collect() for sample in family.samples),
            models={name: ModelLoad.of(model) for name, model in models},
        )
