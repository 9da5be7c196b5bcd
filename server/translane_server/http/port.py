"""The HTTP port: uvicorn's HTTP/1.1 with the bounds of this server, on the event loop of the gRPC port.

uvicorn's own server object takes over signals and polls ten times a second, so only its protocol is used.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from functools import partial

from uvicorn.config import Config
from uvicorn.server import ServerState

from translane.v1 import translation_pb2 as pb
from translane_server.access.certificates import Certificates
from translane_server.core.errors import StartupError
from translane_server.forwarding.forwarder import Forwarder
from translane_server.forwarding.private_socket import PrivateSocket
from translane_server.http.application import Application
from translane_server.http.bodies import Bodies
from translane_server.http.calls import Calls, Conversions
from translane_server.http.connection import HEADER_BYTES, Connection, ConnectionTimes
from translane_server.http.json_messages import most_values
from translane_server.http.listener import Listener
from translane_server.http.origins import Origins
from translane_server.http.pages import made_pages
from translane_server.http.static_files import static_pages
from translane_server.http.status_report import StatusReport
from translane_server.observation.load import read_load
from translane_server.observation.metrics import Metrics
from translane_server.settings.server_settings import ServerSettings

_SERVICE = pb.DESCRIPTOR.services_by_name["TranslationService"]

# JSON may take twice the bytes of the message that it stands for, and more if it escapes every character.
_BYTES_OF_JSON = 2

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
        door: the socket on which the gRPC service takes the calls of this port.
        port: the port.

    Raises:
        OSError: the server cannot listen on the port.
        StartupError: there is no place for the private socket.
    """

    def __init__(
        self,
        settings: ServerSettings,
        metrics: Metrics,
        connections: int,
        certificates: Certificates | None = None,
    ) -> None:
        assert settings.http_port is not None
        self._listener = Listener(settings.host, settings.http_port, connections)
        try:
            self.door = PrivateSocket()
        except StartupError:
            self._listener.close()
            raise
        self.port = self._listener.port
        self._tls = certificates.ssl_context() if certificates else None
        self._forwarder = Forwarder(self.door.address, settings.max_streams)
        self._conversions = Conversions(most_values(settings.max_request_texts))
        body_bytes = _BYTES_OF_JSON * settings.max_message_bytes
        self._body_bytes = body_bytes
        self._times = ConnectionTimes(
            headers=settings.message_timeout,
            stall=settings.message_timeout,
            idle=settings.max_connection_idle,
            age=settings.max_connection_age,
        )
        status = StatusReport(self._forwarder, partial(read_load, metrics.registry))
        application = Application(
            Calls(_SERVICE, self._forwarder, self._conversions, body_bytes),
            made_pages(self._forwarder, {**static_pages(), "/status.json": status.page}, describes=settings.reflection),
            Bodies(
                body_bytes,
                _BYTES_OF_JSON * settings.max_bytes_in_flight,
                settings.caller_share,
                settings.message_timeout,
            ),
            Origins(settings.http_origins),
            metrics.http_requests,
            secret=self.door.secret,
            caller_header=settings.caller_header,
        )
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # it has a line for each client that errs
        self._config = Config(
            application,
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
        self._config.load()
        self._state = ServerState()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Answer requests."""
        self._server = await asyncio.get_running_loop().create_server(
            lambda: Connection(self._config, self._state, self._times, self._body_bytes),
            sock=self._listener,
            ssl=self._tls,
            ssl_handshake_timeout=_HANDSHAKE_TIME if self._tls else None,
            ssl_shutdown_timeout=_TLS_CLOSING_TIME if self._tls else None,
        )

    def drain(self) -> None:
        """Close each connection with its next answer."""
        for connection in self._connections():
            connection.drain()
        self._times = _aged(self._times)

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
        await self._forwarder.close()
        self._conversions.stop()
        self.door.close()

    def _connections(self) -> list[Connection]:
        return [each for each in self._state.connections if isinstance(each, Connection)]


def _aged(times: ConnectionTimes) -> ConnectionTimes:
    """Times with which a new connection closes with its first answer."""
    return ConnectionTimes(times.headers, times.stall, times.idle, age=-1)
