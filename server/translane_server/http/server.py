"""A port that speaks HTTP: uvicorn's HTTP/1.1, with bounds for clients that are slow, silent or hostile.

It runs on the event loop of the gRPC port. uvicorn's own server takes over signals and polls ten times a second, and
asyncio's does not limit connections, so only uvicorn's protocol is used.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from email.utils import formatdate
from functools import partial
from http import HTTPStatus
from typing import Any

import h11
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from translane_server.api.call import REQUEST_ID, request_id_in
from translane_server.http.errors import wrong
from translane_server.workers.fair_queue import FairQueue

_log = logging.getLogger(__name__)

# Connections that wait to be accepted, and most that are accepted in one turn of the event loop.
_BACKLOG = 512
_AT_ONCE = 64

# Requests that begin to be answered in one turn of the event loop. A call of gRPC waits for so many at each of its
# turns.
_ANSWERS_AT_ONCE = 32

# Pause after a connection that cannot be accepted, for example because there are no descriptors left [seconds].
_PAUSE = 1.0

# Largest request line and headers together [bytes].
HEADER_BYTES = 16 * 1024

# A body may come in chunks of any size. Each chunk takes time, so a body has at most `_CHUNKS` of them, and one more
# for each `_BYTES_OF_A_CHUNK` of the largest body.
_CHUNKS = 4096
_BYTES_OF_A_CHUNK = 1024

# The rest of a body whose request is answered already is dropped, up to this many times the largest body.
_DROPPED_BODIES = 8

# The alternative names of a certificate that Python's ssl reads. It has the same text for all others, such as a UPN.
_KINDS_OF_NAMES = ("DNS", "email", "URI", "IP Address")


@dataclass
class Bounds:
    """Bounds of the connections of a port."""

    connections: int  # most connections (≥ 1)
    # how long a client may take for its TLS handshake; to send all headers of a request, from their first byte on;
    # to take something of an answer; and to take the rest of its last answer [seconds]
    patience: float
    idle: float  # time without a request after which a connection is closed [seconds]
    age: float  # time after which a connection is closed with its next answer [seconds]
    body_bytes: int = 0  # largest body of a request [bytes]
    ends_oldest: bool = False  # whether a connection beyond the most ends the oldest one, and not itself


class HttpServer:
    """Listens from the start, and answers by an ASGI application after `start`. All its answers get further headers.

    Attributes:
        port: the port; where 0 was asked for, a free one.
        connections: the open connections and what holds each, the oldest first. A connection counts from its
            acceptance, so one that never ends its TLS handshake counts as well.

    Raises:
        OSError: the server cannot listen on the port.
    """

    def __init__(
        self, application: ASGIApp, host: str, port: int, bounds: Bounds, tls: ssl.SSLContext | None = None
    ) -> None:
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # it has a line for each client that errs
        self._config = Config(
            partial(self._serve, application),
            interface="asgi3",
            http=Connection,
            ws="none",
            log_config=None,
            access_log=False,
            proxy_headers=False,  # any client can set X-Forwarded-For
        )
        self._config.load()
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        both = family == socket.AF_INET6  # of the versions of IP, where the address is that of both
        self._listener = socket.create_server(address, family=family, backlog=_BACKLOG, dualstack_ipv6=both)
        self._listener.setblocking(False)
        # Connections inherit it. Otherwise the body of an answer waits until the client has acknowledged its headers.
        self._listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.port: int = self._listener.getsockname()[1]
        self.connections: dict[Connection, asyncio.Task[None]] = {}
        self._bounds = bounds
        self._tls = tls
        self._state = ServerState()
        self._begun = 0  # requests that begin to be answered in this turn of the event loop
        self._waiting: FairQueue[asyncio.Future[None]] = FairQueue()  # requests that have to wait for a turn
        self._pause: asyncio.TimerHandle | None = None  # after a connection that cannot be accepted

    async def start(self) -> None:
        """Answer requests."""
        asyncio.get_running_loop().add_reader(self._listener, self._accept)

    def drain(self) -> None:
        """Close each connection with its next answer."""
        self._bounds.age = -1

    async def stop(self, seconds: float = 0) -> None:
        """Close the port. Answers that are ready get some seconds to be sent."""
        if self._pause:
            self._pause.cancel()
        if self._listener.fileno() >= 0:  # it may be stopped already
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
        for connection, holding in self.connections.items():
            connection.shutdown() if connection.transport else holding.cancel()
        if self.connections:
            await asyncio.wait(self.connections.values(), timeout=seconds)
        await _end(self.connections.values())
        await _end(self._state.tasks)

    def _accept(self) -> None:
        """Accept connections that wait."""
        loop = asyncio.get_running_loop()
        for _ in range(_AT_ONCE):
            try:
                accepted, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                _log.error("cannot accept a connection: %s", error.strerror)
                loop.remove_reader(self._listener)
                self._pause = loop.call_later(_PAUSE, loop.add_reader, self._listener, self._accept)
                return
            if len(self.connections) >= self._bounds.connections:
                if not self._bounds.ends_oldest:
                    accepted.close()
                    continue
                self.connections.pop(next(iter(self.connections))).cancel()
            accepted.setblocking(False)
            connection = Connection(self._config, self._state, self._bounds)
            self.connections[connection] = holding = loop.create_task(self._hold(connection, accepted))
            holding.add_done_callback(partial(self._ended, connection, accepted))

    async def _hold(self, connection: Connection, accepted: socket.socket) -> None:
        """Hold a connection until it is lost. It ends when the task is cancelled."""
        patience = self._bounds.patience if self._tls else None
        try:
            with suppress(OSError):  # a handshake that fails
                await asyncio.get_running_loop().connect_accepted_socket(
                    lambda: connection, accepted, ssl=self._tls, ssl_handshake_timeout=patience
                )
                await connection.lost.wait()
        finally:
            if connection.transport:
                connection.transport.abort()

    async def _serve(self, application: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request with an application, until the client has taken most of the answer, or has gone."""
        connection: Connection = scope["state"]["connection"]
        request_id = request_id_in(scope["headers"])

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] += [
                    (b"date", formatdate(usegmt=True).encode()),
                    (b"cache-control", b"no-store"),
                    (b"x-content-type-options", b"nosniff"),
                ]
                if request_id:
                    message["headers"].append((REQUEST_ID.encode(), request_id.encode()))
                if connection.is_ending:
                    message["headers"].append((b"connection", b"close"))
            await send(message)

        connection.call = asyncio.current_task()
        try:
            await self._turn((scope["client"] or ("",))[0])
            await application(scope, receive, sent)
            if connection.flow.write_paused:
                await connection.flow.drain()
        except asyncio.CancelledError:
            if not connection.lost.is_set():
                raise

    async def _turn(self, address: str) -> None:
        """Wait until a request may begin to be answered, in this turn of the event loop or in a later one."""
        loop = asyncio.get_running_loop()
        if not self._begun:
            loop.call_soon(self._next_turn)
        if self._begun < _ANSWERS_AT_ONCE:
            self._begun += 1
            return
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.add(turn, address)
        await turn

    def _next_turn(self) -> None:
        """Let requests go on that wait, of each address in turn: a flood from one delays no other for long."""
        self._begun = 0
        while self._waiting.size and self._begun < _ANSWERS_AT_ONCE:
            turn = self._waiting.pop()
            if not turn.done():  # its client may have gone
                turn.set_result(None)
                self._begun += 1
        if self._begun:
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _ended(self, connection: Connection, accepted: socket.socket, _holding: asyncio.Task[None]) -> None:
        self.connections.pop(connection, None)
        accepted.close()  # which nobody holds if the task was cancelled before it began


async def _end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks, and wait for their ends."""
    ended = list(tasks)
    for task in ended:
        task.cancel()
    await asyncio.gather(*ended, return_exceptions=True)


class Connection(H11Protocol):
    """An HTTP/1.1 connection. Another age of the port's bounds holds at once.

    Attributes:
        caller: the name in the client's certificate; empty without one.
        lost: is set when the client has gone.
        call: answers the latest request. It is cancelled when the client goes: nobody waits for its answer.
    """

    def __init__(self, config: Config, state: ServerState, bounds: Bounds) -> None:
        super().__init__(config, state, {"connection": self})
        self.conn: _Parser = _Parser(_CHUNKS + bounds.body_bytes // _BYTES_OF_A_CHUNK)
        self.timeout_keep_alive = bounds.idle  # type: ignore[assignment]  # a timer takes any number
        self.caller = ""
        self.lost = asyncio.Event()
        self.call: asyncio.Task[Any] | None = None
        self._bounds = bounds
        self._made = time.monotonic()
        self._droppable: int | None = None  # bytes, once the connection closes
        self._late: asyncio.TimerHandle | None = None  # while the client has something to send or to take

    @property
    def is_ending(self) -> bool:
        """Whether the connection closes with its next answer."""
        is_early = self.conn.their_state is h11.SEND_BODY  # an answer before the end of the body
        return is_early or time.monotonic() - self._made > self._bounds.age

    def connection_made(self, transport: Any) -> None:
        super().connection_made(_Transport(transport, self._close))  # type: ignore[arg-type]  # it delegates
        if tls := transport.get_extra_info("ssl_object"):
            self.caller = _name_in(tls.getpeercert() or {})
        self._time(is_owing=True)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()
        self._time(is_owing=False)
        super().connection_lost(exc)
        if self.call:
            self.call.cancel()

    def data_received(self, data: bytes) -> None:
        if self._droppable is None:
            super().data_received(data)
            if self.conn.their_state in (h11.DONE, h11.MUST_CLOSE) and not self.conn.trailing_data[0]:
                # uvicorn has paused it for a large body, and would not see the client go.
                self.flow.resume_reading()
            self._time_client()
        else:
            self._droppable -= len(data)
            if self._droppable < 0:
                self.transport.abort()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._time_client()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._time_client()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._time_client()

    def shutdown(self) -> None:
        """Close the connection when its answer is sent, if it has one."""
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
        else:
            self.cycle.keep_alive = False

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002  uvicorn's text
        """Answer what is no HTTP/1.1, and close."""
        error = sys.exception()
        assert isinstance(error, h11.RemoteProtocolError)
        if error.error_status_hint == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
            refusal = wrong("headers", f"have more than {HEADER_BYTES} bytes", error.error_status_hint)
        else:
            refusal = wrong("request", "is not HTTP/1.1, or is beyond its limits", HTTPStatus.BAD_REQUEST)
        headers = [*refusal.headers.items(), ("content-length", str(len(refusal.body))), ("connection", "close")]
        reason = HTTPStatus(refusal.http_status).phrase
        answer = h11.Response(status_code=refusal.http_status, headers=headers, reason=reason)
        with suppress(h11.LocalProtocolError):  # another answer is on its way
            self.transport.write((self.conn.send(answer) or b"") + refusal.body)
        self.transport.close()

    def _close(self, transport: asyncio.Transport) -> None:
        """Close the connection when what waits for the client is sent. Before, drop the rest of a body.

        Many clients read an answer only when they have sent everything. If the server closes a connection before, its
        operating system drops the answer (https://www.rfc-editor.org/rfc/rfc9112#section-9.6).
        """
        if self.lost.is_set():
            return
        is_first = self._droppable is None
        if is_first:
            self._droppable = _DROPPED_BODIES * self._bounds.body_bytes
            self._time(is_owing=False)
            self._time(is_owing=True)
        if not is_first or self.conn.their_state is not h11.SEND_BODY:
            transport.close()
        elif transport.can_write_eof():
            transport.write_eof()

    def _time_client(self) -> None:
        """Time the client while it takes nothing of its answer, or while headers of a request have begun to come."""
        if self._droppable is None:
            has_begun = self.conn.their_state is h11.IDLE and bool(self.conn.trailing_data[0])
            self._time(is_owing=self.flow.write_paused or has_begun)

    def _time(self, *, is_owing: bool) -> None:
        """Abort the connection later if the client owes something; if it does already, from then on."""
        if self._late and not is_owing:
            self._late.cancel()
            self._late = None
        elif not self._late and is_owing:
            self._unset_keepalive_if_required()
            self._late = self.loop.call_later(self._bounds.patience, self.transport.abort)


class _Transport:
    """A transport that is closed by a function."""

    def __init__(self, transport: asyncio.Transport, close: Callable[[asyncio.Transport], None]) -> None:
        self._transport = transport
        self.close = partial(close, transport)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def _name_in(certificate: dict[str, Any]) -> str:
    """The name in a certificate, as Python's ssl has it: its first alternative name, or its common name."""
    for kind, name in certificate.get("subjectAltName", ()):
        if kind in _KINDS_OF_NAMES:
            return str(name)
    names = dict(pair for part in certificate.get("subject", ()) for pair in part)
    return str(names.get("commonName", ""))


class _Parser(h11.Connection):
    """A parser that takes no more than `chunks` chunks of a body."""

    def __init__(self, chunks: int) -> None:
        super().__init__(h11.SERVER, HEADER_BYTES)
        self._most = self._left = chunks

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._left = self._most
            size = len(event.target) + sum(len(name) + len(value) for name, value in event.headers)
            if size > HEADER_BYTES:  # h11 takes any that come at once
                raise h11.RemoteProtocolError("too large headers", HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
            if {b"content-length", b"transfer-encoding"} <= {name for name, _ in event.headers}:
                raise h11.RemoteProtocolError("two lengths")  # a proxy in front may take the other one
        elif isinstance(event, h11.Data):
            self._left -= 1
            if self._left < 0:
                raise h11.RemoteProtocolError("too many chunks")
        return event
