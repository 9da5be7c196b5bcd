"""A connection of the HTTP port: uvicorn's HTTP/1.1, with bounds for clients that are slow, silent or hostile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from translane_server.http.errors import wrong

# Largest request line and headers together [bytes].
HEADER_BYTES = 16 * 1024

# A body may come in chunks of any size. Each chunk takes time, so a body has at most `_CHUNKS` of them, and one more
# for each `_BYTES_OF_A_CHUNK` of the largest body.
_CHUNKS = 4096
_BYTES_OF_A_CHUNK = 1024

# The rest of a body whose request is answered already is dropped: up to this many times the largest body, and for as
# long as a stalled client may take.
_DROPPED_BODIES = 8


@dataclass(frozen=True)
class ConnectionTimes:
    """Times of a connection [seconds].

    Attributes:
        headers: longest time from a connection, or from a request's first byte, to the end of the request's headers.
        stall: longest time in which a client takes nothing of an answer that waits for it.
        idle: time without a request after which a connection is closed.
        age: time after which a connection is closed with its next answer.
    """

    headers: float
    stall: float
    idle: float
    age: float


class Connection(H11Protocol):
    """An HTTP/1.1 connection.

    Args:
        config: uvicorn's settings.
        state: the connections and tasks of the port.
        times: times of the connection.
        body_bytes: largest body of a request [bytes].

    Attributes:
        caller: the name in the client's certificate; empty without one.
        is_lost: whether the client has gone.
    """

    def __init__(self, config: Config, state: ServerState, times: ConnectionTimes, body_bytes: int) -> None:
        super().__init__(config, state, {"connection": self})
        self.conn: _Parser = _Parser(_CHUNKS + body_bytes // _BYTES_OF_A_CHUNK)
        self.timeout_keep_alive = times.idle  # type: ignore[assignment]  # a timer takes any number
        self._times = times
        self._made = time.monotonic()
        self._drains = False
        self.caller = ""
        self.is_lost = False
        self._call: asyncio.Task[Any] | None = None
        self._late_headers: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._late_body: asyncio.TimerHandle | None = None
        self._droppable = _DROPPED_BODIES * body_bytes

    @property
    def is_ending(self) -> bool:
        """Whether the connection closes with its next answer."""
        is_early = self.conn.their_state is h11.SEND_BODY  # an answer before the end of the body
        return is_early or self._drains or time.monotonic() - self._made > self._times.age

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Cancel the current task if the client goes meanwhile: nobody waits for its answer."""
        self._call = asyncio.current_task()
        try:
            yield
        finally:
            self._call = None

    async def drained(self) -> None:
        """Wait until the client has taken most of its answer, or has gone."""
        if self.flow.write_paused:
            await self.flow.drain()

    def connection_made(self, transport: Any) -> None:
        super().connection_made(_LingeringTransport(transport, self._linger))  # type: ignore[arg-type]  # it delegates
        if tls := transport.get_extra_info("ssl_object"):
            self.caller = _name_in(tls.getpeercert() or {})
        self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        for timer in (self._late_headers, self._stalled, self._late_body):
            self._stop(timer)
        super().connection_lost(exc)
        if self._call:
            self._call.cancel()

    def data_received(self, data: bytes) -> None:
        if self._late_body:
            self._droppable -= len(data)
            if self._droppable < 0:
                self.transport.abort()
            return
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop(self._late_headers)
            self._late_headers = None
        elif self._late_headers is None and not self.transport.is_closing():
            self._await_headers()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is h11.IDLE and self.conn.trailing_data[0] and not self.transport.is_closing():
            self._unset_keepalive_if_required()  # the beginning of the next request is here already
            self._await_headers()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled = self.loop.call_later(self._times.stall, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop(self._stalled)

    def timeout_keep_alive_handler(self) -> None:
        if self.transport.get_write_buffer_size():  # the client has not taken the last answer
            self.transport.abort()
        else:
            super().timeout_keep_alive_handler()

    def shutdown(self) -> None:
        self._drains = True
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()

    def drain(self) -> None:
        """Close the connection with its next answer."""
        self._drains = True

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002  uvicorn's text
        """Answer what is no HTTP/1.1, and close."""
        if self.conn.hint == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
            error = wrong("headers", f"have more than {HEADER_BYTES} bytes", self.conn.hint)
        else:
            error = wrong("request", "is not HTTP/1.1, or is beyond its limits", HTTPStatus.BAD_REQUEST)
        headers = [*error.headers.items(), ("content-length", str(len(error.body))), ("connection", "close")]
        status = HTTPStatus(error.http_status)
        try:
            answer = self.conn.send(h11.Response(status_code=status, headers=headers, reason=status.phrase)) or b""
            self.transport.write(answer + error.body)
        except h11.LocalProtocolError:  # an answer is on its way
            pass
        self.transport.close()

    def _linger(self) -> bool:
        """Whether the connection stays open to drop the rest of a body."""
        if self.conn.their_state is not h11.SEND_BODY or self.is_lost or self._late_body:
            return False
        self._late_body = self.loop.call_later(self._times.stall, self.transport.abort)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        return True

    def _await_headers(self) -> None:
        self._stop(self._late_headers)
        self._late_headers = self.loop.call_later(self._times.headers, self.transport.abort)

    @staticmethod
    def _stop(timer: asyncio.TimerHandle | None) -> None:
        if timer is not None:
            timer.cancel()


class _LingeringTransport:
    """A transport that may stay open for a while when it is closed.

    Many clients read an answer only when they have sent everything. If the server closes a connection before, its
    operating system drops the answer (https://www.rfc-editor.org/rfc/rfc9112#section-9.6).
    """

    def __init__(self, transport: asyncio.Transport, lingers: Callable[[], bool]) -> None:
        self._transport = transport
        self._lingers = lingers

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def close(self) -> None:
        if not self._lingers():
            self._transport.close()


def _name_in(certificate: dict[str, Any]) -> str:
    """The name in a certificate, as Python's ssl has it: its first alternative name, or its common name."""
    for _, name in certificate.get("subjectAltName", ()):
        return str(name)
    for part in certificate.get("subject", ()):
        for key, value in part:
            if key == "commonName":
                return str(value)
    return ""


class _Parser(h11.Connection):
    """A parser that refuses a body of very many chunks.

    Attributes:
        hint: HTTP's status for what it has refused.
    """

    def __init__(self, chunks: int) -> None:
        super().__init__(h11.SERVER, HEADER_BYTES)
        self._most = chunks
        self._left = chunks
        self.hint = int(HTTPStatus.BAD_REQUEST)

    def next_event(self) -> Any:
        try:
            return self._checked(super().next_event())
        except h11.RemoteProtocolError as error:
            self.hint = error.error_status_hint
            raise

    def _checked(self, event: Any) -> Any:
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
