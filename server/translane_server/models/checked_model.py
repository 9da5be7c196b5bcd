"""A version of a model whose files are checked, and the parts that decode and answer with it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from translane_server.bundle.bundle import Bundle
from translane_server.bundle.devices import Device
from translane_server.engine.sequence import TargetVocabulary
from translane_server.observation.logs import data, logged_always
from translane_server.observation.model_metrics import ModelMetrics, Pids
from translane_server.settings.server_settings import ServerSettings
from translane_server.text.stored_glossaries import StoredGlossaries
from translane_server.text.tokenizer import Tokenizer
from translane_server.translation.cache import AnswerCache
from translane_server.translation.limits import RequestLimits
from translane_server.workers.connection import WorkerConnection
from translane_server.workers.dispatcher import Dispatcher
from translane_server.workers.messages import ModelSetup, WorkerSetup
from translane_server.workers.placement import place_replicas
from translane_server.workers.processes import process_hosts
from translane_server.workers.worker import Worker

_log = logging.getLogger(__name__)


class CheckedModel(NamedTuple):
    """A version whose files are checked. Nothing decodes with it yet."""

    bundle: Bundle
    device: Device
    tokenizer: Tokenizer
    limits: RequestLimits
    fingerprint: str


def make_dispatcher(
    name: str, settings: ServerSettings, model: CheckedModel, metrics: ModelMetrics, cpus: int
) -> tuple[Dispatcher, Pids]:
    """Make the dispatcher of a model, and the replicas that decode with it. They are not started.

    Args:
        name: the model's name.
        settings: the settings of the model.
        model: the version to decode with.
        metrics: takes the measurements of the replicas.
        cpus: number of CPUs of the model.

    Returns:
        The dispatcher, and the processes of its replicas.
    """
    manifest = model.bundle.manifest
    plan = place_replicas(settings, manifest.architecture.parameters, model.device, cpus)
    alone = f", or {plan.lone_threads} while one works alone" if plan.lone_threads > plan.threads else ""
    _log.info("replicas: %d, of %d threads each%s", len(plan.rows), plan.threads, alone, extra=data(model=name))
    ids = manifest.special_ids
    vocabulary = TargetVocabulary(ids.decoder_start, ids.eos, model.tokenizer.target_surfaces)
    setup = ModelSetup(
        bundle=model.bundle,
        device=model.device,
        threads=plan.threads,
        source_capacity=model.limits.tokens.source,
        target_capacity=model.limits.tokens.target,
        encode_tokens=settings.encode_tokens,
        log_format=settings.log_format,
        log_level=settings.log_level,
        log_always=logged_always(),
    )
    hosts = process_hosts(len(plan.rows), plan.threads)
    replicas = [
        Worker(
            partial(
                WorkerConnection,
                WorkerSetup(number, rows, vocabulary, setup, plan.lone_threads_of(number)),
                host,
            ),
            patience=settings.replica_timeout,
            close=host.close,
        )
        for number, (rows, host) in enumerate(zip(plan.rows, hosts, strict=True))
    ]
    dispatcher = Dispatcher(
        replicas,
        waiting_limit=settings.max_queue_size,
        lone_rows=plan.lone_rows,
        most_priority=settings.max_priority,
        observe=metrics.observe,
        count_loss=metrics.losses.inc,
        count_repeat=metrics.repeats.inc,
    )
    return dispatcher, [partial(getattr, host, "pid") for host in hosts]


def answer_cache(
    settings: ServerSettings, metrics: ModelMetrics, stored: Callable[[], StoredGlossaries]
) -> AnswerCache | None:
    """Make the cache of a version's answers by the settings of its model; None without one."""
    if not settings.cache_bytes:
        return None
    return AnswerCache(
        settings.cache_bytes,
        shared=settings.cache_shared,
        stored=stored,
        count_texts=metrics.count_cached,
        count_evictions=metrics.cache_evictions.inc,
    )
