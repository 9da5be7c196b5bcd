"""The metrics of the server. docs/server.md describes each metric; a test compares the two."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from wsgiref.simple_server import WSGIServer

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    Info,
    PlatformCollector,
    ProcessCollector,
    start_http_server,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from translane_server.measurements import Measurements

# Upper bounds of the buckets [seconds]: of times that a caller waits, and of single runs of the model.
_REQUEST_BUCKETS = (0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 10.0)
_STEP_BUCKETS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1.0)
_ROW_BUCKETS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024)

# The reasons of errors.py that refuse a request before it is decoded.
REJECTIONS = ("INVALID_FIELD", "MODEL_NOT_FOUND", "QUEUE_FULL", "UNAVAILABLE")


class Metrics:
    """The metrics of one server, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        GCCollector(registry=registry)

        method = ("grpc_type", "grpc_service", "grpc_method")
        self.started = Counter("grpc_server_started_total", "RPCs that came in.", method, registry=registry)
        self.handled = Counter(
            "grpc_server_handled_total", "RPCs that were answered.", (*method, "grpc_code"), registry=registry
        )
        self.handling = Histogram(
            "grpc_server_handling_seconds",
            "From an RPC's arrival to its answer.",
            method,
            buckets=_REQUEST_BUCKETS,
            registry=registry,
        )
        self.requests = _seconds(
            registry, "translane_request_duration_seconds", "From receiving a request to its translations."
        )
        self._queue = _seconds(
            registry, "translane_queue_duration_seconds", "From a sentence's acceptance to entering the running batch."
        )
        self._first_token = _seconds(
            registry, "translane_time_to_first_token_seconds", "From a sentence's acceptance to its first token."
        )
        self._encode = _seconds(
            registry,
            "translane_encode_duration_seconds",
            "One run of the encoder over waiting sentences.",
            _STEP_BUCKETS,
        )
        self._step = _seconds(
            registry, "translane_decode_step_duration_seconds", "One step of the decoder.", _STEP_BUCKETS
        )
        self._step_rows = Histogram(
            "translane_step_rows", "Rows of a decoder step.", buckets=_ROW_BUCKETS, registry=registry
        )
        self._move = _seconds(
            registry,
            "translane_row_move_duration_seconds",
            "One copy of hypotheses to other rows, after a decoder step.",
            _STEP_BUCKETS,
        )
        self._moved_rows = Counter(
            "translane_rows_moved_total", "Rows overwritten with copies of other rows.", registry=registry
        )
        self._rows = Gauge("translane_rows", "Rows by state: active or free.", ("state",), registry=registry)
        self._waiting = Gauge("translane_sentences_waiting", "Sentences that wait for a row.", registry=registry)
        self._source_tokens = Counter("translane_source_tokens_total", "Tokens encoded.", registry=registry)
        self._row_steps = Counter("translane_row_steps_total", "Tokens decoded, in all rows.", registry=registry)
        self.generated_tokens = Counter(
            "translane_generated_tokens_total", "Tokens of the hypotheses that were returned.", registry=registry
        )
        self.rejected = Counter(
            "translane_rejected_total", "Requests refused before decoding.", ("reason",), registry=registry
        )
        for reason in REJECTIONS:
            self.rejected.labels(reason)
        self._model = Info("translane_model", "The model served.", registry=registry)

    def describe_model(self, *, name: str, version: str, precision: str, device: str) -> None:
        """Set the labels of the model that is served."""
        self._model.info({"name": name, "version": version, "precision": precision, "device": device})

    def watch_rows(self, rows: int, active_rows: Callable[[], int], waiting: Callable[[], int]) -> None:
        """Read the gauges of the running batches at each scrape."""
        self._rows.labels("active").set_function(active_rows)
        self._rows.labels("free").set_function(lambda: rows - active_rows())
        self._waiting.set_function(waiting)

    def watch_replicas(self, pids: Sequence[Callable[[], int]]) -> None:
        """Read CPU time and memory of replicas' processes at each scrape. `pids[i]` is the process of replica i."""
        self.registry.register(_ReplicaProcesses(pids))

    def observe(self, measured: Measurements) -> None:
        """Add the measurements of a replica."""
        for seconds, source_tokens in measured.encodes:
            self._encode.observe(seconds)
            self._source_tokens.inc(source_tokens)
        for seconds in measured.queue_times:
            self._queue.observe(seconds)
        for seconds, rows in measured.steps:
            self._step.observe(seconds)
            self._step_rows.observe(rows)
            self._row_steps.inc(rows)
        for seconds, rows in measured.moves:
            self._move.observe(seconds)
            self._moved_rows.inc(rows)
        for seconds in measured.first_token_times:
            self._first_token.observe(seconds)


class _ReplicaProcesses(Collector):
    """Collects CPU time and memory of each replica's process, on systems with /proc."""

    def __init__(self, pids: Sequence[Callable[[], int]]) -> None:
        self._processes = [ProcessCollector(pid=pid, registry=None) for pid in pids]

    def collect(self) -> Iterable[Metric]:
        seconds = CounterMetricFamily(
            "translane_replica_cpu_seconds", "Processor time of a replica's process.", labels=("replica",)
        )
        memory = GaugeMetricFamily(
            "translane_replica_resident_memory_bytes",
            "Memory of a replica's process, with memory that replicas share.",
            labels=("replica",),
        )
        for number, process in enumerate(self._processes):
            found = {family.name: family.samples[0].value for family in process.collect()}
            if found:  # empty if the process does not exist
                seconds.add_metric((str(number),), found["process_cpu_seconds"])
                memory.add_metric((str(number),), found["process_resident_memory_bytes"])
        return seconds, memory


class MetricsServer:
    """Serves the metrics to Prometheus on its own port and thread.

    Raises:
        OSError: the server cannot listen on the port.
    """

    def __init__(self, metrics: Metrics, host: str, port: int) -> None:
        self._server: WSGIServer
        self._thread: threading.Thread
        self._server, self._thread = start_http_server(port, host, metrics.registry)
        self.port: int = self._server.server_port

    def stop(self) -> None:
        """Close the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _seconds(
    registry: CollectorRegistry, name: str, documentation: str, buckets: tuple[float, ...] = _REQUEST_BUCKETS
) -> Histogram:
    return Histogram(name, documentation, buckets=buckets, registry=registry)
