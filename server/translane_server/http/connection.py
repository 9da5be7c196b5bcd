"""A connection of the HTTP port: uvicorn's HTTP/1.1, with bounds for clients that are slow, silent or hostile."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from translane_server.api.status import status_of
from translane_server.core.errors import FieldViolation, InvalidRequestError
from translane_server.http.statuses import body_of

# Largest request line and headers together [bytes].
HEADER_BYTES = 16 * 1024

# A body may come in chunks of any size. Each chunk takes time, so a body has at most `_CHUNKS` of them, and one more
# for each `_BYTES_OF_A_CHUNK` of the largest body.
_CHUNKS = 4096
_BYTES_OF_A_CHUNK = 1024


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
        certificate: the client's certificate, as Python's ssl has it; empty without one.
    """

    def __init__(self, config: Config, state: ServerState, times: ConnectionTimes, body_bytes: int) -> None:
        super().__init__(config, state, {"connection": self})
        self.conn = _Parser(_CHUNKS + body_bytes // _BYTES_OF_A_CHUNK)
        self.timeout_keep_alive = times.idle  # type: ignore[assignment]  # a timer takes any number
        self._times = times
        self._made = time.monotonic()
        self._drains = False
        self.certificate: dict[str, Any] = {}
        self._late_headers: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None

    @property
    def is_ending(self) -> bool:
        """Whether the connection closes with its next answer."""
        return self._drains or time.monotonic() - self._made > self._times.age

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        tls = transport.get_extra_info("ssl_object")
        self.certificate = (tls.getpeercert() or {}) if tls else {}
        self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop(self._late_headers)
        self._stop(self._stalled)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
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
        error = InvalidRequestError(FieldViolation("request", "is not HTTP/1.1, or is beyond its limits"))
        body = body_of(status_of(error))
        headers = [
            ("content-type", "application/json"),
            ("content-length", str(len(body))),
            ("connection", "close"),
        ]
        try:
            answer = self.conn.send(h11.Response(status_code=400, headers=headers, reason=b"Bad Request")) or b""
            self.transport.write(answer + body)
        except h11.LocalProtocolError:  # an answer is on its way
            pass
        self.transport.close()

    def _await_headers(self) -> None:
        self._stop(self._late_headers)
        self._late_headers = self.loop.call_later(self._times.headers, self.transport.abort)

    @staticmethod
    def _stop(timer: asyncio.TimerHandle | None) -> None:
        if timer is not None:
            timer.cancel()


class _Parser(h11.Connection):
    """A parser that refuses a body of very many chunks."""

    def __init__(self, chunks: int) -> None:
        super().__init__(h11.SERVER, HEADER_BYTES)
        self._most = chunks
        self._left = chunks

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._left = self._most
            size = len(event.target) + sum(len(name) + len(value) for name, value in event.headers)
            if size > HEADER_BYTES:  # h11 takes any that come at once
                raise h11.RemoteProtocolError("too large headers")
            if {b"content-length", b"transfer-encoding"} <= {name for name, _ in event.headers}:
                raise h11.RemoteProtocolError("two lengths")  # a proxy in front may take the other one
        elif isinstance(event, h11.Data):
            self._left -= 1
            if self._left < 0:
                raise h11.RemoteProtocolError("too many chunks")
        return event
