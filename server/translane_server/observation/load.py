"""How busy the server and its models are, read from the metrics. The figures that only grow give rates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry

# The samples that are read. A registry collects nothing else for them.
_OF_SERVER = ("translane_open_calls", "translane_open_calls_limit", "translane_rejected_total")
_OF_MODELS = (
    "translane_rows",
    "translane_rows_limit",
    "translane_sentences_waiting",
    "translane_sentences_waiting_limit",
    "translane_request_duration_seconds_count",
    "translane_request_duration_seconds_sum",
    "translane_queue_duration_seconds_count",
    "translane_source_tokens_total",
    "translane_generated_tokens_total",
    "translane_model_memory_bytes",
)


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

    rows_busy: int
    rows_limit: int
    sentences_waiting: int
    sentences_waiting_limit: int
    memory_bytes: int
    requests: int
    request_seconds: float
    sentences: int
    source_tokens: int
    generated_tokens: int


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


def read_load(registry: CollectorRegistry) -> ServerLoad:
    """Return the load that the metrics in `registry` tell of."""
    of_server: dict[str, float] = defaultdict(float)
    of_models: dict[str, dict[str, float]] = {}
    for family in registry.restricted_registry([*_OF_SERVER, *_OF_MODELS]).collect():
        for sample in family.samples:
            if sample.name in _OF_SERVER:
                of_server[sample.name] += sample.value
            elif sample.labels.get("state", "active") == "active":
                of_models.setdefault(sample.labels["model"], defaultdict(float))[sample.name] = sample.value
    return ServerLoad(
        open_calls=int(of_server["translane_open_calls"]),
        open_calls_limit=int(of_server["translane_open_calls_limit"]),
        refused=int(of_server["translane_rejected_total"]),
        models={name: _model_load(values) for name, values in of_models.items()},
    )


def _model_load(values: Mapping[str, float]) -> ModelLoad:
    return ModelLoad(
        rows_busy=int(values["translane_rows"]),
        rows_limit=int(values["translane_rows_limit"]),
        sentences_waiting=int(values["translane_sentences_waiting"]),
        sentences_waiting_limit=int(values["translane_sentences_waiting_limit"]),
        memory_bytes=int(values["translane_model_memory_bytes"]),
        requests=int(values["translane_request_duration_seconds_count"]),
        request_seconds=values["translane_request_duration_seconds_sum"],
        sentences=int(values["translane_queue_duration_seconds_count"]),
        source_tokens=int(values["translane_source_tokens_total"]),
        generated_tokens=int(values["translane_generated_tokens_total"]),
    )
