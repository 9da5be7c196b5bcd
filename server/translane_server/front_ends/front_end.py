"""A front end: a server that takes its orders from its parent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from translane.v1 import models_pb2 as pb
from translane_server.access.guard import Guard
from translane_server.access.shared_allowances import SharedAllowances
from translane_server.errors import DeviceError, RequestError
from translane_server.front_ends.messages import (
    Answer,
    Change,
    Collect,
    FrontEndSetup,
    Health,
    Hurry,
    Ping,
    Pong,
    Question,
    Refusal,
    Reload,
    Stop,
    Stopped,
)
from translane_server.front_ends.parent_connection import ParentConnection
from translane_server.models.build import build_registry
from translane_server.models.registry import Registry
from translane_server.observation.call_trace import Tracer
from translane_server.observation.metrics import Metrics
from translane_server.replica.messages import Ready
from translane_server.rpc.model_service import ModelService
from translane_server.server import Server

_log = logging.getLogger(__name__)


class FrontEnd:
    """One of several servers on the same ports.

    Args:
        setup: the setup of the front end.
        parent: the connection to the parent.
        tracer: begins the spans of calls; None if calls are not traced.
    """

    def __init__(self, setup: FrontEndSetup, parent: ParentConnection, tracer: Tracer | None = None) -> None:
        self._setup = setup
        self._parent = parent
        self._tracer = tracer
        self._metrics = Metrics()
        self._server: Server
        self._models: ModelService
        self._stop: asyncio.Future[Stop] = asyncio.get_running_loop().create_future()
        self._hurry = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> int:
        """Load the models, open the ports, and serve until the parent says otherwise; return the exit code.

        Raises:
            StartupError: a model, a certificate or the file of keys is wrong, or the ports cannot be opened.
        """
        self._parent.send(Pong())
        receiving = asyncio.create_task(self._take_messages())
        try:
            setup = self._setup
            # On a thread, because files are read and checked, and the parent wants its answers meanwhile.
            registry = await asyncio.to_thread(build_registry, setup.settings, self._metrics, setup.cpus)
            refuse_cuda(registry)
            guard = Guard(setup.settings, self._metrics, shared_allowances(setup))
            self._server = Server(setup.settings, registry, self._metrics, self._tracer, guard=guard, is_front_end=True)
            self._models = ModelService(registry)
            return await self._serve()
        finally:
            receiving.cancel()
            for task in self._tasks:
                task.cancel()

    async def _serve(self) -> int:
        server, parent = self._server, self._parent
        gone = asyncio.create_task(parent.gone.wait())
        opening = asyncio.create_task(self._open())
        await asyncio.wait({gone, opening}, return_when=asyncio.FIRST_COMPLETED)
        try:
            if not opening.done():
                opening.cancel()
                await asyncio.wait([opening])
                await server.stop(grace=0)
                return 0
            await opening
        except BaseException:
            await server.stop(grace=0)
            raise
        parent.send(Ready())
        self._tell_health(server.health)
        server.health_changed = self._tell_health
        failing = asyncio.create_task(server.failed.wait())
        ends: set[asyncio.Future[Any]] = {gone, failing, self._stop}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if not self._stop.done():
            await server.stop(grace=0)
            return 0 if gone.done() else 1  # the parent starts another one
        drained = await server.stop(self._stop.result().grace, self._hurry)
        parent.send(Stopped(drained))
        await parent.sent()
        return 0

    async def _open(self) -> None:
        """Load the models, and only then listen, so that no caller reaches a front end without models."""
        await self._server.open()
        await self._server.start()

    async def _take_messages(self) -> None:
        while (message := await self._parent.receive()) is not None:
            if isinstance(message, Ping):
                self._parent.send(Pong())
            elif isinstance(message, Reload):
                self._server.request_reload()
            elif isinstance(message, Stop) and not self._stop.done():
                self._stop.set_result(message)
            elif isinstance(message, Hurry):
                self._hurry.set()
            elif isinstance(message, Question):
                task = asyncio.create_task(self._answer(message))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        self._hurry.set()

    async def _answer(self, question: Question) -> None:
        content = question.content
        if isinstance(content, Collect):
            families = await asyncio.to_thread(lambda: list(self._metrics.registry.collect()))
            self._parent.send(Answer(question.number, families))
        else:
            self._parent.send(Answer(question.number, await self._changed(content)))

    async def _changed(self, change: Change) -> bytes | Refusal:
        request = getattr(pb, f"{change.method}Request").FromString(change.request)
        try:
            response = await getattr(self._models, change.method)(request, None)
        except RequestError as error:
            return Refusal(type(error), str(error), getattr(error, "retry_after", None))
        except Exception:  # noqa: BLE001 a bug must not leave the parent without an answer
            _log.exception("%s has failed", change.method)
            return Refusal(RequestError, "the server has failed; its log says why")
        answer: bytes = response.SerializeToString()
        return answer

    def _tell_health(self, states: Mapping[str, int]) -> None:
        self._parent.send(Health(dict(states)))


def shared_allowances(setup: FrontEndSetup) -> SharedAllowances | None:
    """Return the limits of keys that the front end shares with the others; None without keys."""
    return None if setup.allowances is None else SharedAllowances.join(setup.allowances, setup.number)


def refuse_cuda(models: Registry) -> None:
    """Refuse models on a GPU, which a step takes whole.

    Raises:
        DeviceError: a model would run on CUDA.
    """
    for name, model in models.models.items():
        if model.description.device == "cuda":
            raise DeviceError(
                f"model {name} would run on cuda, where --front-ends must be 1: a step takes the whole GPU"
            )
