"""Workers on a cluster of Ray: https://docs.ray.io/en/latest/ray-core/actors.html. This module alone needs Ray.

The texts are read on the machine that the command runs on, and the answers come back to it. Each worker is an actor
with a translator of its own. Ray starts another one in place of a worker that is lost, and gives it the same texts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import ray
from ray.exceptions import RayError

from translane.errors import TranslaneError
from translane_batch.local_model import identity_of_folder
from translane_batch.records import Answer
from translane_batch.settings import BatchError, BatchSettings
from translane_batch.store import Sources
from translane_batch.translator import Translator, opened
from translane_server.core.errors import StartupError, first_line
from translane_server.core.machine import available_cpus
from translane_server.settings.model_sources import ModelPlace

_TEXTS = 512  # of a chunk
_IN_FLIGHT = 2  # chunks that a worker has at once. A killed command loses no more of them
_MOST_LOSSES = 5  # the run ends when so many workers have ended over the same texts
_PATIENCE = 300  # seconds without any answer, after which idle workers get what others have
_OBJECT_STORE = 80 << 20  # about the least that Ray takes [bytes]

Texts = Sequence[tuple[int, str]]
Answers = list[tuple[int, Answer]]


class RayWorker:
    """An actor of the cluster, whose model is loaded with its first call."""

    def __init__(self, settings: BatchSettings, model: str, cpus: int) -> None:
        self._settings, self._model, self._cpus = settings, model, cpus
        self._opening: asyncio.Task[Translator] | None = None

    async def translate(self, texts: Texts) -> tuple[Answers, BatchError | None]:
        """Return the answers of texts with numbers, and what is wrong where some have no answer.

        What is wrong is returned, because an exception would arrive with pages of traceback.
        """
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
        answers: Answers = []
        try:
            translator = await self._opening
            await translator.translate(texts, answers.extend)
        except (BatchError, StartupError, TranslaneError, OSError) as error:
            message = f"machine {ray.util.get_node_ip_address()}: {error}"
            return answers, BatchError(message, getattr(error, "exit_code", 1))
        return answers, None

    async def _open(self) -> Translator:
        place = self._settings.place  # if it is a URL, its digest makes sure that the model is the same
        if isinstance(place, ModelPlace) and identity_of_folder(place.folder) != self._model:
            raise BatchError(f"{place.folder}: another model is there")
        self._opened = opened(self._settings, self._cpus)  # its processes end with that of the actor
        return await self._opened.__aenter__()


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
        actor = ray.remote(
            num_cpus=cpus,
            num_gpus=int(settings.device == "cuda"),
            max_restarts=-1,
            max_task_retries=_MOST_LOSSES - 1,
            max_concurrency=_IN_FLIGHT,
        )(RayWorker)
        workers = [actor.remote(for_other_processes(settings), model, cpus) for _ in range(number)]
        most = min(_TEXTS, settings.task_size)
        yield lambda sources, done: _translate(workers, sources.left(most), sources, done, log)
    finally:
        ray.shutdown()


def _translate(
    workers: Sequence[Any],
    left: Iterator[Texts],
    sources: Sources,
    done: Callable[[int], None],
    log: Callable[[str], None],
) -> None:
    """Have workers translate what is left, in chunks.

    A worker gets texts once its model is loaded, because the cluster may have no room for some workers for long. An
    empty call loads the model. A worker whose machine is lost waits for another one, perhaps for ever: after
    `_PATIENCE`, idle workers get its chunks, too, and the first answer counts.
    """
    running: dict[Any, tuple[Any, Texts]] = {
        worker.translate.remote([]): (worker, []) for worker in workers for _ in range(_IN_FLIGHT)
    }
    unanswered: dict[int, Texts] = {}  # chunks by the number of their first text
    chunk = next(left, None)
    try:
        while chunk or unanswered:
            ended, _ = ray.wait(list(running), timeout=_PATIENCE)
            if not ended:
                log("no worker has answered for some minutes; the cluster may have no room for all of them")
                busy = [worker for worker, _ in running.values()]
                idle = [worker for worker in workers if worker not in busy]
                for worker, texts in zip(idle, unanswered.values(), strict=False):
                    running[worker.translate.remote(texts)] = worker, texts
                continue
            worker, texts = running.pop(ended[0])
            answers, problem = ray.get(ended[0])
            if texts and texts[0][0] in unanswered:
                del unanswered[texts[0][0]]
                sources.save(answers)
                done(len(answers))
            if problem:
                raise problem
            if chunk:
                running[worker.translate.remote(chunk)] = worker, chunk
                unanswered[chunk[0][0]] = chunk
                chunk = next(left, None)
    except RayError as error:
        raise BatchError(f"Ray has given up: {first_line(error)}") from error


def _connect(settings: BatchSettings) -> None:
    chosen: dict[str, Any] = {"address": settings.ray}
    if settings.ray == "local":
        # Chunks are small, so the least object store is enough.
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
