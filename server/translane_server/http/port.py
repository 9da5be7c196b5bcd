"""The HTTP port: uvicorn's HTTP/1.1 with the bounds of this server, on the event loop of the gRPC port.

uvicorn's own server object takes over signals and polls ten times a second, so only its protocol is used.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import replace
from functools import partial

from starlette.types import ASGIApp
from uvicorn.config import Config
from uvicorn.server import ServerState

from translane.v1 import translation_pb2 as pb
from translane_server.access.certificates import Certificates
from translane_server.api.answering import Answering
from translane_server.api.call import Method
from translane_server.api.health import HealthService
from translane_server.api.service import SERVICE_NAME, TranslationService
from translane_server.http.application import application, status_page
from translane_server.http.calls import BYTES_OF_JSON, Rpc, Rpcs
from translane_server.http.connection import HEADER_BYTES, Connection, ConnectionTimes
from translane_server.http.json_messages import most_values
from translane_server.http.listener import Listener
from translane_server.models.registry import Registry
from translane_server.observation.load import ServerLoad
from translane_server.observation.metrics import Metrics
from translane_server.settings.server_settings import ServerSettings

# Longest time of a TLS handshake, and of the end of a TLS connection [seconds].
_HANDSHAKE_TIME = 10.0
_TLS_CLOSING_TIME = 5.0

# How often the port looks whether its last answers are sent [seconds].
_CLOSING_INTERVAL = 0.01


class HttpPort:
    """The port. It listens from the start, and answers after `start`.

    Args:
        settings: settings of the server.
        metrics: counts requests.
        connections: most connections.
        certificates: the certificate of the port; None without TLS.

    Attributes:
        port: the port.

    Raises:
        OSError: the server cannot listen on the port.
    """

    def __init__(
        self, settings: ServerSettings, metrics: Metrics, connections: int, certificates: Certificates | None = None
    ) -> None:
        assert settings.http_port is not None
        self._settings = settings
        self._metrics = metrics
        self._listener = Listener(settings.host, settings.http_port, connections)
        self.port = self._listener.port
        self._tls = certificates.ssl_context() if certificates else None
        self._body_bytes = BYTES_OF_JSON * settings.max_message_bytes
        self._times = ConnectionTimes(
            headers=settings.message_timeout,
            stall=settings.message_timeout,
            idle=settings.max_connection_idle,
            age=settings.max_connection_age,
        )
        self._state = ServerState()
        self._server: asyncio.Server | None = None

    async def start(
        self, answering: Answering, service: TranslationService, models: Registry, health: HealthService
    ) -> None:
        """Answer requests.

        Args:
            answering: admits and answers calls.
            service: handles calls.
            models: the models of the server, whose pool of tokenizers reads and writes large JSON, too.
            health: knows the health of the server.
        """
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # it has a line for each client that errs
        config = Config(
            self._application(answering, service, models, health),
            http=Connection,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,  # any client can set X-Forwarded-For
            server_header=False,
            date_header=False,
            h11_max_incomplete_event_size=HEADER_BYTES,
        )
        config.load()
        self._server = await asyncio.get_running_loop().create_server(
            lambda: Connection(config, self._state, self._times, self._body_bytes),
            sock=self._listener,
            ssl=self._tls,
            ssl_handshake_timeout=_HANDSHAKE_TIME if self._tls else None,
            ssl_shutdown_timeout=_TLS_CLOSING_TIME if self._tls else None,
        )

    def drain(self) -> None:
        """Close each connection with its next answer."""
        for connection in self._connections():
            connection.drain()
        self._times = replace(self._times, age=-1)  # new connections, too

    async def stop(self, seconds: float) -> None:
        """Close the port. Answers that are ready get some seconds to be sent."""
        self._listener.close() if self._server is None else self._server.close()
        for connection in self._connections():
            connection.shutdown()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._state.connections:  # noqa: ASYNC110  uvicorn tells nobody
                    await asyncio.sleep(_CLOSING_INTERVAL)
        for connection in self._connections():
            connection.transport.abort()
        for task in list(self._state.tasks):
            task.cancel()
        await asyncio.gather(*self._state.tasks, return_exceptions=True)

    def _application(
        self, answering: Answering, service: TranslationService, models: Registry, health: HealthService
    ) -> ASGIApp:
        settings, metrics = self._settings, self._metrics
        rpcs = Rpcs(
            answering,
            lambda: models.pool,
            settings.max_message_bytes,
            most_values(settings.max_request_texts),
            settings.caller_header,
        )
        unary, stream = partial(Method, metrics, "unary"), partial(Method, metrics, "server_stream", writes_many=True)
        translate = Rpc(rpcs, unary(SERVICE_NAME, "Translate"), service.Translate, pb.TranslateRequest)
        streamed = stream(SERVICE_NAME, "TranslateStream")
        translate_stream = Rpc(rpcs, streamed, service.TranslateStream, pb.TranslateStreamRequest)
        score = Rpc(rpcs, unary(SERVICE_NAME, "Score"), service.Score, pb.ScoreRequest)
        list_models = partial(Rpc, rpcs, unary(SERVICE_NAME, "ListModels"), service.ListModels, pb.ListModelsRequest)
        shown = status_page(partial(ServerLoad.of, metrics))
        return application(
            {"/v1/translate": translate, "/v1/stream": translate_stream, "/v1/score": score},
            {"/v1/models": list_models(), "/status.json": list_models(show=shown)},
            health.of_server,
            metrics.http_requests,
            origins=settings.http_origins,
            describes=settings.reflection,
        )

    def _connections(self) -> list[Connection]:
        return [each for each in self._state.connections if isinstance(each, Connection)]
