"""Workers on a cluster of Ray, https://docs.ray.io/en/latest/ray-core/actors.html. This module alone imports Ray.

Each worker is an actor with a server of its own. An actor that is lost, or whose machine is, is replaced by another
one, wherever the cluster has room, and its tasks go to whoever is free. All machines see the work folder at the same
path, and the model, too, if it has no URL.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError

from translane.errors import TranslaneError
from translane_batch.errors import BatchError
from translane_batch.model_identity import identity_of_folder
from translane_batch.settings import BatchSettings
from translane_batch.tasks import Task
from translane_batch.work_folder import WorkFolder
from translane_batch.worker import TASKS, Worker
from translane_batch.workers import WorkerLostError
from translane_server.core.cpus import available_cpus
from translane_server.core.errors import StartupError, first_line
from translane_server.settings.model_sources import ModelPlace

_MOST_STARTS = 5  # failed ones in a row, before a worker is given up
_OBJECT_STORE = 80 << 20  # about the least that Ray takes [bytes]
_CLOSING_TIME = 10.0  # that workers get to end [seconds]


@dataclass(frozen=True)
class _Failure:
    """Why an actor could not do something. An exception would arrive with pages of traceback."""

    message: str
    exit_code: int = 1


class _Actor:
    """A worker in a process of the cluster."""

    def __init__(self, settings: BatchSettings, work: Path, model: str, cpus: int) -> None:
        self._settings, self._work, self._model, self._cpus = settings, work, model, cpus
        self._worker: Worker | None = None

    async def open(self) -> _Failure | None:
        """Load the model. Return what is wrong, if something is."""
        node = ray.util.get_node_ip_address()
        if not self._work.is_dir():
            return _Failure(f"{self._work}: machine {node} has no such folder; --work names one that all machines see")
        try:
            place = self._settings.place  # if it is a URL, its digest makes sure that the model is the same
            if isinstance(place, ModelPlace) and identity_of_folder(place.folder) != self._model:
                return _Failure(f"{place.folder}: machine {node} has another model there")
            self._worker = await Worker.open(self._settings, WorkFolder(self._work), self._cpus)
        except (BatchError, StartupError) as error:
            return _Failure(f"machine {node}: {error}", error.exit_code)
        except (TranslaneError, OSError) as error:
            return _Failure(f"machine {node}: {error}")
        return None

    async def translate(self, task: Task) -> _Failure | None:
        """Translate a task. Return what is wrong, if something is."""
        assert self._worker is not None, "open comes first"
        try:
            await self._worker.translate(task)
        except (BatchError, TranslaneError, OSError) as error:
            return _Failure(f"machine {ray.util.get_node_ip_address()}: {error}")
        return None

    async def close(self) -> None:
        """End the server, so that nothing of it is left on the machine."""
        if self._worker:
            await self._worker.close()


class RayWorkers:
    """Workers on a cluster. `open` makes them.

    Args:
        make: starts an actor, which waits as long as the cluster has no room.
        number: how many there are.
        log: takes lines for people.
    """

    def __init__(self, make: Callable[[], Any], number: int, log: Callable[[str], None]) -> None:
        self.places = TASKS * number
        self._make, self._log = make, log
        self._left = number  # workers that are not given up
        self._actors: set[Any] = set()  # those that are not lost
        self._ready: set[Any] = set()  # those of them that have started
        # An actor is there as often as it can take a task. An error is there if no worker is left.
        self._free: asyncio.Queue[Any] = asyncio.Queue()
        self._starts = {asyncio.create_task(self._start()) for _ in range(number)}

    @classmethod
    async def open(
        cls, settings: BatchSettings, work: WorkFolder, model: str, log: Callable[[str], None]
    ) -> RayWorkers:
        """Connect to the cluster, or start one, and start the workers. Return when one of them is ready.

        Args:
            settings: of the run.
            work: the folder of its state.
            model: what identifies the model.
            log: takes lines for people.

        Raises:
            BatchError: there is no such cluster, or it has no CPUs, or no worker can start.
        """
        _connect(settings)
        try:
            cpus, number = _division(settings, [int(node["Resources"].get("CPU", 0)) for node in _nodes()])
        except BatchError:
            ray.shutdown()
            raise
        log(f"{number} worker{'s' * (number != 1)} of {cpus} CPU{'s' * (cpus != 1)} each")
        settings, folder = _for_other_processes(settings), work.path.absolute()
        remote = ray.remote(num_cpus=cpus, num_gpus=int(settings.device == "cuda"), max_restarts=0)(_Actor)
        workers = cls(lambda: remote.remote(settings, folder, model, cpus), number, log)
        try:
            workers._free.put_nowait(await workers._next())
        except BaseException:
            await workers.close()
            raise
        return workers

    async def translate(self, task: Task, done: Callable[[int], None]) -> None:
        """See `Workers`."""
        actor = await self._next()
        try:
            failure = await actor.translate.remote(task)
        except RayActorError as error:
            if actor in self._ready:  # else its other task has found out before
                self._lose(actor)
                self._log("a worker is lost, and another one is started")
                self._starts.add(asyncio.create_task(self._start()))
            raise WorkerLostError from error
        self._free.put_nowait(actor)
        if failure:
            raise BatchError(failure.message, failure.exit_code)
        done(task.sources)

    async def close(self) -> None:
        """See `Workers`."""
        for start in self._starts:
            start.cancel()
        await asyncio.gather(*self._starts, return_exceptions=True)
        closing = [asyncio.ensure_future(actor.close.remote()) for actor in self._ready]
        if closing:
            await asyncio.wait(closing, timeout=_CLOSING_TIME)
        for actor in list(self._actors):
            self._lose(actor)
        await asyncio.gather(*closing, return_exceptions=True)
        ray.shutdown()

    async def _next(self) -> Any:
        """Return an actor that can take a task. Raise BatchError if no worker is left."""
        while True:
            free = await self._free.get()
            if isinstance(free, BatchError):
                self._free.put_nowait(free)  # for all others who wait
                raise free
            if free in self._ready:
                return free

    def _lose(self, actor: Any) -> None:
        self._actors.discard(actor)
        self._ready.discard(actor)
        ray.kill(actor)  # a lost one may be only out of reach

    async def _start(self) -> None:
        """Start a worker; give it up if it cannot start."""
        message = f"a worker has ended {_MOST_STARTS} times while it started"
        exit_code = 1
        for _ in range(_MOST_STARTS):
            actor = self._make()
            self._actors.add(actor)
            try:
                failure = await actor.open.remote()
            except RayActorError:
                self._lose(actor)
                continue
            except RayError as error:  # a bug, or packages that differ between the machines
                failure = _Failure(f"a worker does not start: {first_line(error)}")
            if not failure:
                self._ready.add(actor)
                for _ in range(TASKS):
                    self._free.put_nowait(actor)
                return
            self._lose(actor)
            message, exit_code = failure.message, failure.exit_code
            break  # it would fail again
        self._left -= 1
        if self._left:
            self._log(f"a worker is given up: {message}")
        else:
            self._free.put_nowait(BatchError(message, exit_code))


def _for_other_processes(settings: BatchSettings) -> BatchSettings:
    """Return the settings with paths that hold for workers, who have folders of their own as the current one."""
    place, cache = settings.place, settings.model_cache
    if isinstance(place, ModelPlace):
        settings = settings.model_copy(update={"model": str(place.folder.absolute())})
    if cache and not str(cache).startswith("~"):  # ~ is the folder of the worker's own user
        settings = settings.model_copy(update={"model_cache": cache.absolute()})
    return settings


def _connect(settings: BatchSettings) -> None:
    chosen: dict[str, Any] = {"address": settings.ray}
    if settings.ray == "local":
        # Tasks are a few bytes.
        chosen |= {"num_cpus": available_cpus(), "object_store_memory": _OBJECT_STORE, "include_dashboard": False}
    try:
        ray.init(**chosen, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # Ray raises this very type if a cluster does not start in time
        raise BatchError(f"--ray {settings.ray}: there is no such cluster ({first_line(error)})") from error


def _nodes() -> list[Any]:
    return [node for node in ray.nodes() if node["Alive"]]


def _division(settings: BatchSettings, machines: list[int]) -> tuple[int, int]:
    """Return the CPUs of each worker, and the number of workers. `machines` are the CPUs of each machine.

    Raises:
        BatchError: no machine has so many CPUs.
    """
    with_cpus = [cpus for cpus in machines if cpus]
    if not with_cpus:
        raise BatchError("the cluster of Ray has no CPUs")
    each = settings.cpus_per_worker or min(with_cpus)
    if each > max(with_cpus):
        raise BatchError(f"--cpus-per-worker: no machine of the cluster has {each} CPUs", exit_code=2)
    return each, settings.workers or sum(cpus // each for cpus in with_cpus)
