"""The HTTP port: the calls of the gRPC port as JSON, and the status page."""

from __future__ import annotations

from functools import partial

from starlette.types import ASGIApp

from translane.v1 import translation_pb2 as pb
from translane_server.access.certificates import Certificates
from translane_server.api.answering import Answering
from translane_server.api.call import Method
from translane_server.api.health import HealthService
from translane_server.api.service import SERVICE_NAME, TranslationService
from translane_server.http.application import application, status_page
from translane_server.http.calls import BYTES_OF_JSON, Rpc, Rpcs
from translane_server.http.connection import ConnectionTimes
from translane_server.http.json_messages import most_values
from translane_server.http.server import HttpServer, Listener
from translane_server.models.registry import Registry
from translane_server.observation.load import ServerLoad
from translane_server.observation.metrics import Metrics
from translane_server.settings.server_settings import ServerSettings


class HttpPort(HttpServer):
    """The port. It listens from the start, and answers after `start`.

    Args:
        settings: settings of the server.
        metrics: counts requests.
        connections: most connections.
        certificates: the certificate of the port; None without TLS.

    Raises:
        OSError: the server cannot listen on the port.
    """

    def __init__(
        self, settings: ServerSettings, metrics: Metrics, connections: int, certificates: Certificates | None = None
    ) -> None:
        assert settings.http_port is not None
        times = ConnectionTimes(
            headers=settings.message_timeout,
            stall=settings.message_timeout,
            idle=settings.max_connection_idle,
            age=settings.max_connection_age,
        )
        super().__init__(
            Listener(settings.host, settings.http_port, connections),
            times,
            BYTES_OF_JSON * settings.max_message_bytes,
            certificates.ssl_context() if certificates else None,
        )
        self._settings = settings
        self._metrics = metrics

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
        await self.serve(self._application(answering, service, models, health))

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
        unary = partial(Method, metrics, "unary", protocol="http")
        stream = partial(Method, metrics, "server_stream", writes_many=True, protocol="http")
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
            origins=settings.http_origins,
            describes=settings.reflection,
        )
