"""Workers on a cluster of Ray, by Ray Data: https://docs.ray.io/en/latest/data/data.html. This module alone needs Ray.

The texts are read on the machine that the command runs on, and the answers come back to it. Each worker is an actor
with a translator of its own. Ray starts another one in place of a worker that is lost, and gives it the same texts.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow
import ray
from ray.data import ActorPoolStrategy, DataContext, Datasource, ReadTask
from ray.data.block import BlockMetadata
from ray.exceptions import RayError
from ray.util.annotations import RayDeprecationWarning

from translane.errors import TranslaneError
from translane_batch.local_model import identity_of_folder
from translane_batch.records import Answer
from translane_batch.settings import BatchError, BatchSettings
from translane_batch.store import Sources
from translane_batch.translator import opened
from translane_server.core.errors import StartupError, first_line
from translane_server.core.machine import available_cpus
from translane_server.settings.model_sources import ModelPlace

_TEXTS, _IN_FLIGHT = 512, 2  # of a batch, and batches of a worker: a kill of the command loses no more
_MOST_LOSSES = 5  # workers that may end while they translate the same texts
_OBJECT_STORE = 80 << 20  # about the least that Ray takes [bytes]


class _Left(Datasource):  # type: ignore[misc]  # Ray has no types here
    """The texts that have no answer, in the file of the run. A row is a batch of them."""

    def __init__(self, path: Path, most: int) -> None:
        super().__init__()
        self._path, self._most = path, most

    def estimate_inmemory_data_size(self) -> int | None:
        return self._path.stat().st_size

    def get_read_tasks(self, *_: Any, **__: Any) -> list[ReadTask]:
        """One task reads all, as fast as the texts are taken."""
        size = BlockMetadata(num_rows=None, size_bytes=None, exec_stats=None, input_files=None)
        return [ReadTask(self._blocks, size)]

    def _blocks(self) -> Iterator[pyarrow.Table]:
        with Sources(self._path) as sources:
            for chunk in sources.left(self._most):
                yield _row(chunk)


class _Actor:
    """A worker in a process of the cluster.

    What is wrong is an answer, too: an exception would arrive with pages of traceback, after further starts.
    """

    def __init__(self, settings: BatchSettings, model: str, cpus: int) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._failure: tuple[str, int] | None = None
        try:
            place = settings.place  # if it is a URL, its digest makes sure that the model is the same
            if isinstance(place, ModelPlace) and identity_of_folder(place.folder) != model:
                raise BatchError(f"{place.folder}: another model is there")
            self._opened = opened(settings, cpus)
            self._translator = self._run(self._opened.__aenter__())
        except (BatchError, StartupError, TranslaneError, OSError) as error:
            self._fail(error)

    def __call__(self, batch: pyarrow.Table) -> pyarrow.Table:
        """Translate the texts of a row. Ray calls this on as many threads as batches may be in flight."""
        answers: list[tuple[int, Answer]] = []
        if not self._failure:
            try:
                self._run(self._translator.translate(_value(batch), answers.extend))
            except (BatchError, TranslaneError, OSError) as error:
                self._fail(error)
        return _row([self._failure, answers])

    def __del__(self) -> None:
        """End the model, when Ray ends the worker."""
        if not self._failure:
            self._run(self._opened.__aexit__(None, None, None))

    def _run(self, awaited: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(awaited, self._loop).result()

    def _fail(self, error: Exception) -> None:
        message = f"machine {ray.util.get_node_ip_address()}: {error}"
        self._failure = message, getattr(error, "exit_code", 1)


@contextmanager
def ray_workers(
    settings: BatchSettings, model: str, log: Callable[[str], None]
) -> Iterator[Callable[[Sources, Callable[[int], None]], None]]:
    """Connect to the cluster, or start one, and yield what translates; see `run.Translate`."""
    _connect(settings)
    try:
        machines = [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]
        cpus, number = division(settings, machines)
        log(f"{number} worker{'s' * (number != 1)} of {cpus} CPU{'s' * (cpus != 1)} each")
        yield lambda sources, done: _translate(settings, model, cpus, number, sources, done)
    finally:
        ray.shutdown()


def _translate(
    settings: BatchSettings, model: str, cpus: int, number: int, sources: Sources, done: Callable[[int], None]
) -> None:
    context = DataContext.get_current()
    context.enable_progress_bars = False
    context.max_errored_blocks = 0
    context.target_max_block_size = 1  # each row is handed on at once
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    left = ray.data.read_datasource(
        _Left(sources.path.absolute(), min(_TEXTS, settings.task_size)),
        override_num_blocks=1,
        num_cpus=0,
        label_selector={"ray.io/node-id": ray.get_runtime_context().get_node_id()},
    )
    with warnings.catch_warnings(action="ignore", category=RayDeprecationWarning):  # of max_task_retries
        answered = left.map_batches(
            _Actor,
            fn_constructor_args=(for_other_processes(settings), model, cpus),
            batch_size=None,
            batch_format="pyarrow",
            compute=ActorPoolStrategy(
                size=number,
                max_tasks_in_flight_per_actor=_IN_FLIGHT,
                max_concurrent_calls_per_actor=_IN_FLIGHT,
                enable_true_multi_threading=True,
            ),
            num_cpus=cpus,
            num_gpus=int(settings.device == "cuda"),
            max_task_retries=_MOST_LOSSES - 1,
        )
    try:
        for batch in answered.iter_batches(batch_size=1, batch_format="pyarrow"):
            failure, answers = _value(batch)
            sources.save([(number, Answer(*answer)) for number, answer in answers])
            done(len(answers))
            if failure:
                raise BatchError(*failure)
    except RayError as error:
        raise BatchError(f"Ray has given up: {first_line(error)}") from error
    total, there = sources.counts()
    if there < total:
        raise BatchError(f"Ray has lost {total - there:,} texts")


def _row(value: Any) -> pyarrow.Table:
    return pyarrow.table({"value": [json.dumps(value)]})


def _value(row: pyarrow.Table) -> Any:
    return json.loads(row["value"][0].as_py())


def _connect(settings: BatchSettings) -> None:
    chosen: dict[str, Any] = {"address": settings.ray}
    if settings.ray == "local":
        # Batches are small.
        chosen |= {"num_cpus": available_cpus(), "object_store_memory": _OBJECT_STORE, "include_dashboard": False}
    try:
        ray.init(**chosen, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # Ray raises this very type if a cluster does not start in time
        raise BatchError(f"--ray {settings.ray}: there is no such cluster ({first_line(error)})") from error


def for_other_processes(settings: BatchSettings) -> BatchSettings:
    """Return the settings with paths that hold for workers, who have folders of their own as the current one."""
    place, cache = settings.place, settings.model_cache
    if isinstance(place, ModelPlace):
        settings = settings.model_copy(update={"model": str(place.folder.absolute())})
    if cache and not str(cache).startswith("~"):  # ~ is the folder of the worker's own user
        settings = settings.model_copy(update={"model_cache": cache.absolute()})
    return settings


def division(settings: BatchSettings, machines: list[int]) -> tuple[int, int]:
    """Return the CPUs of each worker, and the number of workers. `machines` are the CPUs of each machine."""
    with_cpus = [cpus for cpus in machines if cpus]
    if not with_cpus:
        raise BatchError("the cluster of Ray has no CPUs")
    each = settings.cpus_per_worker or min(with_cpus)
    if each > max(with_cpus):
        raise BatchError(f"--cpus-per-worker: no machine of the cluster has {each} CPUs", exit_code=2)
    return each, settings.workers or sum(cpus // each for cpus in with_cpus)
