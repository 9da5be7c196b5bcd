"""The metrics of the server. docs/server.md describes each metric; a test compares the two."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    Info,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)

from translane_server.observation.model_metrics import REQUEST_BUCKETS, ModelFamilies, ModelMetrics

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


class Metrics:
    """The metrics of one server, in a registry of their own."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # each doubles a series, to tell when it began
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
            buckets=REQUEST_BUCKETS,
            registry=registry,
        )
        self._calls = Gauge("translane_open_calls", "Calls that are open.", registry=registry)
        self._call_limit = Gauge(
            "translane_open_calls_limit", "Most calls that may be open: the setting max_calls.", registry=registry
        )
        self._call_bytes = Gauge("translane_open_call_bytes", "Bytes of the messages of open calls.", registry=registry)
        self._of_models = ModelFamilies(registry)
        self.rejected = Counter(
            "translane_rejected_total", "Requests refused before decoding.", ("reason",), registry=registry
        )
        for reason in REJECTIONS:
            self.rejected.labels(reason)
        build = Info("translane_build", "The versions of Translane and of ONNX Runtime, as labels.", registry=registry)
        build.info({"version": version("translane"), "onnxruntime": _runtime_version()})
        self.http_requests = Counter(
            "translane_http_requests_total", "Requests that the HTTP port answered.", ("status",), registry=registry
        )
        self.key_rejected = Counter(
            "translane_key_rejected_total",
            "Requests with a key that were refused before decoding.",
            ("key", "reason"),
            registry=registry,
        )
        self.key_sentences = Counter(
            "translane_key_sentences_total", "Sentences of requests with a key.", ("key",), registry=registry
        )

    def of_model(self, name: str) -> ModelMetrics:
        """Make the series of the model `name`. `ModelMetrics.remove` removes them."""
        return ModelMetrics(self._of_models, name)

    def watch_calls(self, calls: Callable[[], int], size: Callable[[], int], limit: int) -> None:
        """Read the gauges of open calls at each scrape. The limit of open calls stays as it is."""
        self._calls.set_function(calls)
        self._call_bytes.set_function(size)
        self._call_limit.set(limit)


def _runtime_version() -> str:
    """Return the version of ONNX Runtime, which only replicas import; empty if it is not installed."""
    for name in _RUNTIMES:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return ""
