"""The server: it runs the gRPC port, the metrics port and the dispatcher."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from translane.v1.translation_pb2_grpc import add_TranslationServiceServicer_to_server
from translane_server.dispatch.dispatcher import Dispatcher
from translane_server.errors import StartupError
from translane_server.logs import data
from translane_server.metrics import Metrics, MetricsServer
from translane_server.requests.limits import RequestLimits
from translane_server.rpc.interceptors import CallInterceptor
from translane_server.rpc.service import SERVICE_NAME, ServedModel, TranslationService
from translane_server.settings import ServerSettings, token_limits

_log = logging.getLogger(__name__)

# Threads that turn text into tokens and back. The other CPUs run the model.
_TOKENIZER_THREADS = 2
# Time to send the answers that are ready, and the last health states [seconds].
_CLOSING_TIME = 0.5
# Time in which new calls are answered with UNAVAILABLE after the last translation [seconds]. Calls that arrive when the
# port closes get CANCELLED from gRPC, without a reason.
_LAST_CALLS_TIME = 0.2

_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class Server:
    """Listens after `start`, translates after `open`, and ends with `stop`. All calls come from one event loop.

    Args:
        settings: settings of the server.
        model: the model to serve.
    """

    def __init__(self, settings: ServerSettings, model: ServedModel) -> None:
        self._settings = settings
        self._model = model
        self.metrics = Metrics()
        self.limits = RequestLimits(
            settings.texts_per_request,
            settings.sentences_waiting,
            token_limits(settings, model.manifest),
            settings.beam_limit,
        )
        self._executor = ThreadPoolExecutor(_TOKENIZER_THREADS, thread_name_prefix="tokenizer")
        self._service = TranslationService(
            model, self.limits, self.metrics, self._executor, log_texts=settings.log_texts
        )
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]  # missing from the stubs
        self._dispatcher: Dispatcher | None = None
        self._watch: asyncio.Task[None] | None = None
        self._metrics_server: MetricsServer | None = None
        self._grpc: grpc.aio.Server | None = None
        self.failed = asyncio.Event()  # set when decoding has failed for good
        self.stopped = False
        self.port = 0
        self.metrics_port = 0

    async def start(self) -> None:
        """Listen on both ports. Translations are refused until `open`.

        Raises:
            StartupError: the server cannot listen on a port.
        """
        settings, manifest = self._settings, self._model.manifest
        self.metrics.describe_model(
            name=manifest.name, version=manifest.version, precision=manifest.precision, device=self._model.device
        )
        await self._set_health(_NOT_SERVING)
        # Without this option a second server could share the port, and would get some of the requests.
        options = [
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", settings.max_message_bytes),
            ("grpc.max_send_message_length", -1),
        ]
        self._grpc = grpc.aio.server(interceptors=[CallInterceptor(self.metrics)], options=options)
        add_TranslationServiceServicer_to_server(self._service, self._grpc)  # type: ignore[no-untyped-call]
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._grpc)
        if settings.reflection:
            names = (SERVICE_NAME, health.SERVICE_NAME, reflection.SERVICE_NAME)
            reflection.enable_server_reflection(names, self._grpc)
        try:
            self.port = self._grpc.add_insecure_port(_address(settings.host, settings.port))
        except RuntimeError:
            raise StartupError(_refusal(settings.host, settings.port)) from None
        try:
            self._metrics_server = MetricsServer(self.metrics, settings.host, settings.metrics_port)
        except OSError as error:
            raise StartupError(_refusal(settings.host, settings.metrics_port, error)) from None
        self.metrics_port = self._metrics_server.port
        await self._grpc.start()
        _log.info("listening on %s", _address(settings.host, self.port))
        _log.info("metrics on http://%s/metrics", _address(settings.host, self.metrics_port))

    async def open(self, dispatcher: Dispatcher) -> None:
        """Start `dispatcher`, and translate with it. `stop` stops the dispatcher.

        Raises:
            StartupError: the dispatcher cannot start.
        """
        self._dispatcher = dispatcher
        await dispatcher.start()
        self._watch = asyncio.create_task(self._watch_dispatcher(dispatcher))
        if dispatcher.failed.is_set():  # a replica was lost while another one started
            return
        self.metrics.watch_rows(dispatcher.rows, lambda: dispatcher.active_rows, lambda: dispatcher.waiting)
        self._service.open(dispatcher)
        await self._set_health(_SERVING)
        manifest = self._model.manifest
        facts = data(model=manifest.name, version=manifest.version, precision=manifest.precision)
        _log.info("serving on %s with %d rows", self._model.device, dispatcher.rows, extra=facts)

    async def stop(self, grace: float, hurry: asyncio.Event | None = None) -> bool:
        """Refuse new translations, finish the accepted ones, and close.

        After `grace` seconds, or as soon as `hurry` is set, the unfinished translations are answered with UNAVAILABLE.

        Returns:
            Whether all accepted translations were finished.
        """
        self.stopped = True
        self._service.close()
        await self._health.enter_graceful_shutdown()
        if self._watch:
            self._watch.cancel()
        drained = await _first(self._service.idle(), hurry, grace)
        if drained and self._dispatcher:
            await _first(asyncio.sleep(_LAST_CALLS_TIME), hurry, _LAST_CALLS_TIME)
        if self._dispatcher:
            await self._dispatcher.stop()
        if self._grpc:
            if not drained:  # the dispatcher has failed the unfinished requests, whose answers are written now
                await _first(self._service.idle(), None, _CLOSING_TIME)
            await self._grpc.stop(_CLOSING_TIME if not (hurry and hurry.is_set()) else 0)
        if self._metrics_server:
            await asyncio.to_thread(self._metrics_server.stop)
        self._executor.shutdown(wait=False, cancel_futures=True)
        return drained

    async def _watch_dispatcher(self, dispatcher: Dispatcher) -> None:
        await dispatcher.failed.wait()
        _log.error("decoding has failed, and nothing is translated any more; the server ends")
        await self._set_health(_NOT_SERVING)
        self.failed.set()

    async def _set_health(self, state: health_pb2.HealthCheckResponse.ServingStatus) -> None:
        for service in ("", SERVICE_NAME):
            await self._health.set(service, state)


async def _first(wanted: Coroutine[Any, Any, None], hurry: asyncio.Event | None, seconds: float) -> bool:
    """Whether `wanted` ends before `hurry` is set, and within `seconds`."""
    done = asyncio.ensure_future(wanted)
    others = [asyncio.ensure_future(hurry.wait())] if hurry else []
    await asyncio.wait([done, *others], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for task in (done, *others):
        task.cancel()
    return done.done() and not done.cancelled()


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _refusal(host: str, port: int, error: OSError | None = None) -> str:
    """Why the server cannot listen on `host`:`port`. gRPC gives no reason, so this function tries once more."""
    if error is None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            with contextlib.closing(socket.create_server((host, port), family=family)):
                pass
        except OSError as refused:
            error = refused
    if error is None or error.errno is None:
        return f"cannot listen on {_address(host, port)}"
    # A host name that cannot be resolved has an errno < 0. Python's message for it repeats the address after " (while".
    why = os.strerror(error.errno) if error.errno > 0 else str(error.strerror).partition(" (while")[0]
    return f"cannot listen on {_address(host, port)}: {why}"
