"""The metrics of the server and of its models. docs/server.md lists each metric; `make check` compares the two."""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from itertools import accumulate
from typing import Any, Protocol

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Info,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import (
    CounterMetricFamily,
    Exemplar,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

# Upper bounds of the buckets [seconds]: of times that a caller waits, and of single runs of the model. The first ones
# are for small models, whose steps take a fraction of a millisecond.
_REQUEST_BUCKETS = (
    *(0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075),
    *(0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0),
)
_TEXT_BUCKETS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)
_STEP_BUCKETS = (
    *(0.00005, 0.0001, 0.0002, 0.0003, 0.0005, 0.00075),
    *(0.001, 0.0015, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1.0),
)
_ROW_BUCKETS = (1.0, 2.0, 4.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0, 96.0, 128.0, 256.0, 512.0, 1024.0)

# The families of models, with what they mean. Each series has the label `model`. The first ones are counted, in the
# attribute of `ModelMetrics` that has the family's name.
_COUNTED = {
    "translane_requests_total": "Requests to translate or score, by the answer's code and protocol. The model is empty"
    " where the request was refused before one was chosen.",
    "translane_request_duration_seconds": "From receiving a request to its answer, by result: ok or failed.",
    "translane_request_texts": "Texts of a request.",
    "translane_queue_duration_seconds": "From a sentence's acceptance to entering the running batch.",
    "translane_time_to_first_token_seconds": "From a sentence's acceptance to its first token.",
    "translane_encode_duration_seconds": "One run of the encoder over waiting sentences.",
    "translane_decode_step_duration_seconds": "One step of the decoder.",
    "translane_step_rows": "Rows of a decoder step.",
    "translane_row_move_duration_seconds": "One copy of hypotheses to other rows, after a decoder step.",
    "translane_rows_moved_total": "Rows overwritten with copies of other rows.",
    "translane_replica_losses_total": "Replicas that were lost, and replicas that did not start again.",
    "translane_sentences_repeated_total": "Sentences that were decoded again after a loss or a failed step.",
    "translane_source_tokens_total": "Tokens encoded.",
    "translane_row_steps_total": "Tokens decoded, in all rows.",
    "translane_generated_tokens_total": "Tokens of hypotheses that were returned, or decoded again.",
    "translane_cache_texts_total": "Texts of answered requests, by whether the cache had them: hit or miss.",
    "translane_cache_evictions_total": "Translations that the cache has forgotten for others.",
    "translane_model_reloads_total": "New versions of the model, by outcome: reloaded or refused.",
}
_READ = {
    "translane_model_loaded": "Whether the model is in memory and translates: 1 or 0.",
    "translane_model_memory_bytes": "Memory of the model's replicas when it was loaded; memory that they share counts"
    " once.",
    "translane_model": "The model served: version, digest of its bundle, precision and device, as labels.",
    "translane_rows": "Rows by state: active or free.",
    "translane_rows_limit": "Rows of all replicas: hypotheses that decode at once.",
    "translane_sentences_waiting": "Sentences that wait for a row.",
    "translane_sentences_waiting_limit": "Most sentences that may wait: the setting max_queue_size.",
    "translane_cache_entries": "Translations in the cache.",
    "translane_cache_bytes": "Memory of the translations in the cache.",
    "translane_replica_cpu_seconds_total": "Processor time of a replica's process.",
    "translane_replica_resident_memory_bytes": "Memory of a replica's process, with memory that replicas share.",
}
# The families of methods, which have the labels of gRPC's metrics elsewhere.
_METHODS = {
    "grpc_server_started_total": "RPCs that came in.",
    "grpc_server_handled_total": "RPCs that were answered.",
    "grpc_server_handling_seconds": "From an RPC's arrival to its answer.",
}
_METHOD = ("grpc_type", "grpc_service", "grpc_method")
# The labels of a family, where they are not the model alone.
_LABELS = {
    "grpc_server_started_total": _METHOD,
    "grpc_server_handled_total": (*_METHOD, "grpc_code"),
    "grpc_server_handling_seconds": _METHOD,
    "translane_requests_total": ("model", "code", "protocol"),
    "translane_request_duration_seconds": ("model", "result"),
    "translane_rows": ("model", "state"),
    "translane_cache_texts_total": ("model", "outcome"),
    "translane_model_reloads_total": ("model", "outcome"),
    "translane_replica_cpu_seconds_total": ("model", "replica"),
    "translane_replica_resident_memory_bytes": ("model", "replica"),
}
_HISTOGRAMS = ("translane_step_rows", "translane_request_texts")

# The distributions that hold ONNX Runtime: for CPUs, and for GPUs.
_RUNTIMES = ("onnxruntime", "onnxruntime-gpu")

# The reasons of errors.py that refuse a request before it is decoded.
REJECTIONS = (
    "INVALID_FIELD",
    "MODEL_NOT_FOUND",
    "MISSING_KEY",
    "UNKNOWN_KEY",
    "EXPIRED_KEY",
    "MESSAGE_TOO_LARGE",
    "MESSAGE_TIMEOUT",
    "TOO_MANY_CALLS",
    "TOO_MANY_BYTES",
    "TOO_MANY_SENTENCES",
    "TOO_MANY_SENTENCES_PER_SECOND",
    "QUEUE_FULL",
    "UNAVAILABLE",
)

# The outcomes of a reload that finds another version of a model.
RELOADED, REFUSED = "reloaded", "refused"

Pids = Sequence[Callable[[], int]]
"""Returns the process of each replica; -1 if the process does not run."""

Measured = tuple[
    Sequence[tuple[float, int]],
    Sequence[float],
    Sequence[tuple[float, int]],
    Sequence[tuple[float, int]],
    Sequence[float],
]
"""What a replica has measured: seconds and tokens of each encoder run; seconds for which each sentence waited; seconds
and rows of each decoder step; seconds and rows of each copy of rows; seconds to the first token of each sentence."""


class Metrics(Collector):
    """The metrics of one server, in a registry of their own. They collect the series of methods and models themselves.

    A scrape comes on another thread than what is counted. It reads plain numbers, and one may be newer than another.
    """

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # each doubles a series, to tell when it began
        self.registry = registry = CollectorRegistry(auto_describe=True)
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        GCCollector(registry=registry)

        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)

        self._calls = gauge("translane_open_calls", "Calls that are open.")
        self._call_limit = gauge("translane_open_calls_limit", "Most calls that may be open: the setting max_calls.")
        self._call_bytes = gauge("translane_open_call_bytes", "Bytes of the messages of open calls.")
        self.methods: dict[tuple[str, str, str], MethodMetrics] = {}  # by the kind, the service and the name
        self.models: dict[str, ModelMetrics] = {}
        self.unrouted: Answers = Tally()  # of requests that were refused before a model was chosen
        registry.register(self)
        self.rejected = counter("translane_rejected_total", "Requests refused before decoding.", ("reason",))
        for reason in REJECTIONS:
            self.rejected.labels(reason)
        build = Info("translane_build", "The versions of Translane and of ONNX Runtime, as labels.", registry=registry)
        build.info({"version": version("translane"), "onnxruntime": _runtime_version()})
        self.key_rejected = counter(
            "translane_key_rejected_total", "Requests with a key that were refused before decoding.", ("key", "reason")
        )
        self.key_sentences = counter("translane_key_sentences_total", "Sentences of requests with a key.", ("key",))
        self.watch_calls(lambda: 0, lambda: 0, 0)

    def of_model(self, name: str) -> ModelMetrics:
        """Make the series of the model `name`. `ModelMetrics.remove` removes them."""
        return ModelMetrics(name, self.models)

    def of_method(self, kind: str, service: str, name: str) -> MethodMetrics:
        """Return the series of a method, which all ports share."""
        return self.methods.setdefault((kind, service, name), MethodMetrics())

    def watch_calls(self, calls: Callable[[], int], size: Callable[[], int], limit: int) -> None:
        """Read the gauges of open calls at each scrape. The limit of open calls stays as it is."""
        self.open_calls, self.open_calls_limit = calls, limit
        self._calls.set_function(calls)
        self._call_bytes.set_function(size)
        self._call_limit.set(limit)

    def collect(self) -> Iterable[Metric]:
        """Return the series of all methods and models."""
        families = {name: _family(name, meaning) for name, meaning in (_METHODS | _COUNTED | _READ).items()}
        for method, calls in list(self.methods.items()):
            families["grpc_server_started_total"].add_metric(method, calls.started)
            for code, number in list(calls.handled.items()):
                families["grpc_server_handled_total"].add_metric((*method, code), number)
            families["grpc_server_handling_seconds"].add_metric(method, calls.handling.buckets(), calls.handling.sum)
        for model, metrics in list(self.models.items()):
            for name, value in metrics.values().items():
                for labels, each in list(value.items()) if isinstance(value, Mapping) else [((), value)]:
                    shown = (each.buckets(), each.sum) if isinstance(each, Distribution) else (float(each),)
                    families[name].add_metric((model, *labels), *shown)
            if metrics.description:
                families["translane_model"].add_metric((model,), metrics.description)
        for labels, number in list(self.unrouted.items()):
            families["translane_requests_total"].add_metric(("", *labels), number)
        return families.values()


def _runtime_version() -> str:
    """Return the version of ONNX Runtime, which only replicas import; empty if it is not installed."""
    for name in _RUNTIMES:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return ""


class Count:
    """A number that only grows. Only one thread counts, so there is no lock."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def inc(self, number: int = 1) -> None:
        """Add `number`."""
        self.value += number

    def __float__(self) -> float:
        return float(self.value)


class Distribution:
    """Counts values by size, and sums them. Only one thread observes, so there is no lock.

    The bounds are the upper ones of the buckets, without infinity.
    """

    __slots__ = ("_bounds", "_counts", "_exemplars", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._exemplars: dict[int, Exemplar] = {}
        self.sum = 0.0

    @property
    def count(self) -> int:
        """Number of values."""
        return sum(self._counts)

    def observe(self, values: Sequence[float], exemplar: dict[str, str] | None = None) -> None:
        """Count values. The bucket of each shows the last exemplar that it got."""
        bounds, counts = self._bounds, self._counts
        for value in values:
            bucket = bisect_left(bounds, value)
            counts[bucket] += 1
            self.sum += value
            if exemplar:
                self._exemplars[bucket] = Exemplar(exemplar, value, time.time())

    def buckets(self) -> list[tuple[str, float] | tuple[str, float, Exemplar]]:
        """Return the bound of each bucket, how many values are at most as large, and its exemplar if it has one."""
        counts = accumulate(self._counts)
        pairs = enumerate(zip(_written(self._bounds), counts, strict=True))
        exemplars = self._exemplars
        return [(*pair, exemplars[place]) if place in exemplars else pair for place, pair in pairs]


@cache
def _written(bounds: tuple[float, ...]) -> tuple[str, ...]:
    return tuple([floatToGoString(bound) for bound in (*bounds, math.inf)])  # type: ignore[no-untyped-call]


_Single = float | Count | Distribution
_Value = _Single | Mapping[tuple[str, ...], _Single]

Answers = Tally[tuple[str, ...]]
"""How many requests were answered, by code and protocol."""


class MethodMetrics:
    """The series of one method."""

    def __init__(self) -> None:
        self.started = 0
        self.handled: Tally[str] = Tally()  # by code
        self.handling = Distribution(_REQUEST_BUCKETS)  # from a call's arrival to its answer [seconds]


class Decoder(Protocol):
    """What decodes with the loaded version of a model: rows of all replicas, and sentences that wait for one.

    It is read at each scrape, on another thread.
    """

    @property
    def is_available(self) -> bool: ...
    @property
    def rows(self) -> int: ...
    @property
    def active_rows(self) -> int: ...
    @property
    def waiting(self) -> int: ...
    @property
    def waiting_limit(self) -> int: ...


class ModelMetrics:
    """The series of one model, which join those of all models by name.

    Its versions share them: a reload does not interrupt a counter. The `description` is the labels of the version that
    is served. The `decoder` decodes with the one that is loaded; None if none is.
    """

    def __init__(self, name: str, models: dict[str, ModelMetrics]) -> None:
        self._name = name
        self._models = models
        models[name] = self
        self.requests: Answers = Tally()
        self.ok, self._failed = (Distribution(_REQUEST_BUCKETS) for _ in range(2))  # [seconds]
        self.request_duration_seconds = {("ok",): self.ok, ("failed",): self._failed}
        self.request_texts, self.step_rows = Distribution(_TEXT_BUCKETS), Distribution(_ROW_BUCKETS)
        self.queue_duration_seconds, self.time_to_first_token_seconds = (
            Distribution(_REQUEST_BUCKETS) for _ in range(2)
        )
        self.encode_duration_seconds, self.decode_step_duration_seconds, self.row_move_duration_seconds = (
            Distribution(_STEP_BUCKETS) for _ in range(3)
        )
        self.source_tokens, self.row_steps, self.rows_moved, self.generated_tokens = (Count() for _ in range(4))
        self.replica_losses, self.sentences_repeated, self.cache_evictions = (Count() for _ in range(3))
        self.cache_texts = {("hit",): 0, ("miss",): 0}
        self.model_reloads = {(RELOADED,): 0, (REFUSED,): 0}
        self.description: Mapping[str, str] = {}
        self.decoder: Decoder | None = None
        self._replicas: list[ProcessCollector] = []
        self._cache: tuple[Callable[[], int], Callable[[], int]] | None = None
        self.memory = 0  # of the replicas when the version was loaded [bytes]; 0 if it is not known

    def answered(self, code: str, protocol: str, seconds: float, exemplar: dict[str, str] | None = None) -> None:
        """Count a request to translate or score that was answered after so many seconds."""
        self.requests[code, protocol] += 1
        (self.ok if code == "OK" else self._failed).observe([seconds], exemplar)

    def watch(self, decoder: Decoder, pids: Pids) -> None:
        """Report the version that is loaded, by what decodes with it and the processes of its replicas."""
        self.decoder, self._replicas = decoder, [ProcessCollector(pid=pid, registry=None) for pid in pids]

    def watch_cache(self, entries: Callable[[], int], size: Callable[[], int]) -> None:
        """Read the number of translations in the version's cache, and their memory [bytes], at each scrape."""
        self._cache = (entries, size)

    def count_cached(self, hits: int, misses: int) -> None:
        """Count the texts of a request that were in the cache, and those that were not."""
        self.cache_texts["hit",] += hits
        self.cache_texts["miss",] += misses

    def unwatch(self) -> None:
        """Report that no version is loaded."""
        self.decoder = self._cache = None
        self._replicas = []
        self.memory = 0

    def count_reload(self, outcome: str) -> None:
        """Count a new version that was found: RELOADED or REFUSED."""
        self.model_reloads[outcome,] += 1

    def remove(self) -> None:
        """Remove the series of the model, which is not served any more."""
        if self._models.get(self._name) is self:
            del self._models[self._name]

    def observe(self, measured: Measured) -> None:
        """Add what a replica has measured."""
        encodes, queue_times, steps, moves, first_token_times = measured
        if encodes:
            seconds, tokens = zip(*encodes, strict=True)
            self.encode_duration_seconds.observe(seconds)
            self.source_tokens.value += sum(tokens)
        if queue_times:
            self.queue_duration_seconds.observe(queue_times)
        if steps:
            seconds, rows = zip(*steps, strict=True)
            self.decode_step_duration_seconds.observe(seconds)
            self.step_rows.observe(rows)
            self.row_steps.value += sum(rows)
        if moves:
            seconds, rows = zip(*moves, strict=True)
            self.row_move_duration_seconds.observe(seconds)
            self.rows_moved.value += sum(rows)
        if first_token_times:
            self.time_to_first_token_seconds.observe(first_token_times)

    def values(self) -> Mapping[str, _Value]:
        """Return the value of each family: one, or one for each value of another label."""
        decoder, cached = self.decoder, self._cache
        found = {name: getattr(self, name.removeprefix("translane_").removesuffix("_total")) for name in _COUNTED}
        found["translane_model_loaded"] = decoder is not None and decoder.is_available
        found["translane_model_memory_bytes"] = self.memory
        if cached:
            found["translane_cache_entries"], found["translane_cache_bytes"] = (read() for read in cached)
        if decoder:
            rows, active = decoder.rows, decoder.active_rows
            found["translane_rows"] = {("active",): active, ("free",): rows - active}
            found["translane_rows_limit"] = rows
            found["translane_sentences_waiting"] = decoder.waiting
            found["translane_sentences_waiting_limit"] = decoder.waiting_limit
            found |= _of_processes(self._replicas)
        return found


def _of_processes(replicas: Iterable[ProcessCollector]) -> Mapping[str, Mapping[tuple[str, ...], float]]:
    """Return processor time and memory of the replicas whose processes exist, on systems with /proc."""
    seconds: dict[tuple[str, ...], float] = {}
    memory: dict[tuple[str, ...], float] = {}
    for number, process in enumerate(replicas):
        if found := {family.name: family.samples[0].value for family in process.collect()}:
            seconds[str(number),] = found["process_cpu_seconds"]
            memory[str(number),] = found["process_resident_memory_bytes"]
    return {"translane_replica_cpu_seconds_total": seconds, "translane_replica_resident_memory_bytes": memory}


def _family(name: str, meaning: str) -> Any:
    labels = _LABELS.get(name, ("model",))
    if name == "translane_model":
        kind: type[Metric] = InfoMetricFamily
    elif name.endswith("_seconds") or name in _HISTOGRAMS:
        kind = HistogramMetricFamily
    else:
        kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    return kind(name, meaning, labels=labels)  # type: ignore[call-arg]  # all of them take labels
