"""The metrics of models. Each series has the label `model`; docs/server.md describes each metric."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.registry import Collector

from translane_server.engine.sequence import StepStats

# Upper bounds of the buckets [seconds]: of times that a caller waits, and of single runs of the model. The first ones
# are for small models, whose steps take a fraction of a millisecond.
REQUEST_BUCKETS = (
    *(0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075),
    *(0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 10.0),
)
_STEP_BUCKETS = (
    *(0.00005, 0.0001, 0.0002, 0.0003, 0.0005, 0.00075),
    *(0.001, 0.0015, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1.0),
)
_ROW_BUCKETS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024)

# The outcomes of a reload that finds another version of a model.
RELOADED, REFUSED = "reloaded", "refused"
_OUTCOMES = (RELOADED, REFUSED)
_ROW_STATES = ("active", "free")
# Whether the translation of a text was in the cache.
_LOOKUPS = ("hit", "miss")

Pids = Sequence[Callable[[], int]]
"""Returns the process of each replica; -1 if the process does not run."""


class ModelFamilies:
    """The metrics that each model has."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._all: list[tuple[MetricWrapperBase, Sequence[str]]] = []  # with the values of their second label
        self.requests = self._histogram(
            "translane_request_duration_seconds", "From receiving a request to its translations.", REQUEST_BUCKETS
        )
        self.queue = self._histogram(
            "translane_queue_duration_seconds",
            "From a sentence's acceptance to entering the running batch.",
            REQUEST_BUCKETS,
        )
        self.first_token = self._histogram(
            "translane_time_to_first_token_seconds", "From a sentence's acceptance to its first token.", REQUEST_BUCKETS
        )
        self.encode = self._histogram(
            "translane_encode_duration_seconds", "One run of the encoder over waiting sentences.", _STEP_BUCKETS
        )
        self.step = self._histogram("translane_decode_step_duration_seconds", "One step of the decoder.", _STEP_BUCKETS)
        self.step_rows = self._histogram("translane_step_rows", "Rows of a decoder step.", _ROW_BUCKETS)
        self.move = self._histogram(
            "translane_row_move_duration_seconds",
            "One copy of hypotheses to other rows, after a decoder step.",
            _STEP_BUCKETS,
        )
        self.moved_rows = self._counter("translane_rows_moved_total", "Rows overwritten with copies of other rows.")
        self.rows = self._gauge("translane_rows", "Rows by state: active or free.", "state", _ROW_STATES)
        self.rows_limit = self._gauge("translane_rows_limit", "Rows of all replicas: hypotheses that decode at once.")
        self.waiting_limit = self._gauge(
            "translane_sentences_waiting_limit", "Most sentences that may wait: the setting max_queue_size."
        )
        self.waiting = self._gauge("translane_sentences_waiting", "Sentences that wait for a row.")
        self.losses = self._counter("translane_replica_losses_total", "Replicas that were lost.")
        self.repeats = self._counter(
            "translane_sentences_repeated_total",
            "Sentences that were decoded again after a loss or a failed step.",
        )
        self.source_tokens = self._counter("translane_source_tokens_total", "Tokens encoded.")
        self.row_steps = self._counter("translane_row_steps_total", "Tokens decoded, in all rows.")
        self.generated_tokens = self._counter(
            "translane_generated_tokens_total", "Tokens of the hypotheses that were returned."
        )
        self.cache_texts = self._counter(
            "translane_cache_texts_total",
            "Texts of answered requests, by whether the cache had them: hit or miss.",
            "outcome",
            _LOOKUPS,
        )
        self.cache_evictions = self._counter(
            "translane_cache_evictions_total", "Translations that the cache has forgotten for others."
        )
        self.cache_entries = self._gauge("translane_cache_entries", "Translations in the cache.")
        self.cache_bytes = self._gauge("translane_cache_bytes", "Memory of the translations in the cache.")
        self.loaded = self._gauge("translane_model_loaded", "Whether the model is in memory and translates: 1 or 0.")
        self.memory = self._gauge(
            "translane_model_memory_bytes",
            "Memory of the model's replicas when it was loaded; memory that they share counts once.",
        )
        self.reloads = self._counter(
            "translane_model_reloads_total",
            "New versions of the model, by outcome: reloaded or refused.",
            "outcome",
            _OUTCOMES,
        )
        self.info = Info(
            "translane_model",
            "The model served: version, precision and device, as labels.",
            ("model",),
            registry=registry,
        )
        self._all.append((self.info, ()))
        self.replicas = _ReplicaProcesses()
        registry.register(self.replicas)

    def remove(self, name: str) -> None:
        """Remove all series of a model."""
        self.replicas.models.pop(name, None)
        for family, values in self._all:
            _remove(family, name, values)

    def _histogram(self, name: str, documentation: str, buckets: Sequence[float]) -> Histogram:
        family = Histogram(name, documentation, ("model",), buckets=buckets, registry=self._registry)
        self._all.append((family, ()))
        return family

    def _counter(self, name: str, documentation: str, label: str = "", values: Sequence[str] = ()) -> Counter:
        family = Counter(name, documentation, ("model", label) if label else ("model",), registry=self._registry)
        self._all.append((family, values))
        return family

    def _gauge(self, name: str, documentation: str, label: str = "", values: Sequence[str] = ()) -> Gauge:
        family = Gauge(name, documentation, ("model", label) if label else ("model",), registry=self._registry)
        self._all.append((family, values))
        return family


class ModelMetrics:
    """The series of one model. Its versions share them: a reload does not interrupt a counter.

    Args:
        families: the metrics of all models.
        name: the model's name.
    """

    def __init__(self, families: ModelFamilies, name: str) -> None:
        self._families = families
        self._name = name
        # Children are looked up once, because a look-up takes as long as counting.
        self.requests = families.requests.labels(name)
        self.generated_tokens = families.generated_tokens.labels(name)
        self.losses = families.losses.labels(name)
        self.repeats = families.repeats.labels(name)
        self.cache_evictions = families.cache_evictions.labels(name)
        self._hits, self._misses = (families.cache_texts.labels(name, outcome) for outcome in _LOOKUPS)
        self._queue = families.queue.labels(name)
        self._first_token = families.first_token.labels(name)
        self._encode = families.encode.labels(name)
        self._step = families.step.labels(name)
        self._step_rows = families.step_rows.labels(name)
        self._move = families.move.labels(name)
        self._moved_rows = families.moved_rows.labels(name)
        self._source_tokens = families.source_tokens.labels(name)
        self._row_steps = families.row_steps.labels(name)
        self._loaded = families.loaded.labels(name)
        self._memory = families.memory.labels(name)
        self._reloads = {outcome: families.reloads.labels(name, outcome) for outcome in _OUTCOMES}

    def describe(self, *, version: str, precision: str, device: str) -> None:
        """Set the labels of the version that is served."""
        facts = {"version": version, "precision": precision, "device": device}
        self._families.info.labels(self._name).info(facts)

    def watch(
        self, rows: int, active_rows: Callable[[], int], waiting: Callable[[], int], waiting_limit: int, pids: Pids
    ) -> None:
        """Report the version that is loaded. The gauges of its batches and processes are read at each scrape.

        Args:
            rows: number of rows of all replicas.
            active_rows: returns how many of the rows are decoding.
            waiting: returns the number of sentences that wait.
            waiting_limit: most sentences that may wait.
            pids: the processes of the replicas.
        """
        families, name = self._families, self._name
        families.rows.labels(name, "active").set_function(active_rows)
        families.rows.labels(name, "free").set_function(lambda: rows - active_rows())
        families.rows_limit.labels(name).set(rows)
        families.waiting.labels(name).set_function(waiting)
        families.waiting_limit.labels(name).set(waiting_limit)
        families.replicas.models[name] = [ProcessCollector(pid=pid, registry=None) for pid in pids]
        self._loaded.set(1)

    def watch_cache(self, entries: Callable[[], int], size: Callable[[], int]) -> None:
        """Read the gauges of the version's cache at each scrape.

        Args:
            entries: returns the number of translations.
            size: returns their memory [bytes].
        """
        self._families.cache_entries.labels(self._name).set_function(entries)
        self._families.cache_bytes.labels(self._name).set_function(size)

    def count_cached(self, hits: int, misses: int) -> None:
        """Count the texts of a request that were in the cache, and those that were not."""
        self._hits.inc(hits)
        self._misses.inc(misses)

    def set_memory(self, size: int) -> None:
        """Report the memory of all replicas [bytes]; 0 if it is not known."""
        self._memory.set(size)

    def unwatch(self) -> None:
        """Report that no version is loaded."""
        families, name = self._families, self._name
        families.replicas.models.pop(name, None)
        _remove(families.rows, name, _ROW_STATES)
        for family in (
            *(families.rows_limit, families.waiting, families.waiting_limit),
            *(families.cache_entries, families.cache_bytes),
        ):
            _remove(family, name)
        self._memory.set(0)
        self._loaded.set(0)

    def count_reload(self, outcome: str) -> None:
        """Count a new version that was found: RELOADED or REFUSED."""
        self._reloads[outcome].inc()

    def remove(self) -> None:
        """Remove the series of the model, which is not served any more."""
        self._families.remove(self._name)

    def observe(self, measured: StepStats) -> None:
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

    def __init__(self) -> None:
        self.models: dict[str, Sequence[ProcessCollector]] = {}

    def collect(self) -> Iterable[Metric]:
        labels = ("model", "replica")
        seconds = CounterMetricFamily(
            "translane_replica_cpu_seconds", "Processor time of a replica's process.", labels=labels
        )
        memory = GaugeMetricFamily(
            "translane_replica_resident_memory_bytes",
            "Memory of a replica's process, with memory that replicas share.",
            labels=labels,
        )
        # A copy: the metrics port has a thread of its own, and a model may come or go meanwhile.
        models: Mapping[str, Sequence[ProcessCollector]] = dict(self.models)
        for name, processes in models.items():
            for number, process in enumerate(processes):
                found = {family.name: family.samples[0].value for family in process.collect()}
                if found:  # empty if the process does not exist
                    seconds.add_metric((name, str(number)), found["process_cpu_seconds"])
                    memory.add_metric((name, str(number)), found["process_resident_memory_bytes"])
        return seconds, memory


def _remove(family: MetricWrapperBase, name: str, values: Sequence[str] = ()) -> None:
    """Remove the series of a model; `values` are those of the second label. A missing series is no error."""
    series: list[tuple[str, ...]] = [(name, value) for value in values] if values else [(name,)]
    for labels in series:
        with contextlib.suppress(KeyError):
            family.remove(*labels)
