"""An HTTP/2 client that does what no library does: it writes any frames in any order, as fast as it can (RFC 9113)."""

from __future__ import annotations

import base64
import contextlib
import socket
import struct
import threading
from collections.abc import Mapping, Sequence

import grpc
import hpack
from hyperframe.exceptions import HyperframeError
from hyperframe.frame import (
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from helpers.failures import Failure, parsed

TRANSLATE = "/translane.v1.TranslationService/Translate"
STREAM = "/translane.v1.TranslationService/TranslateStream"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

_CODES = {code.value[0]: code for code in grpc.StatusCode}
_WINDOW = 2**30  # so that the server may always answer [bytes]
_RECEIVED_AT_ONCE = 65536
_FRAME_HEADER = 9


class RawConnection:
    """A connection, whose frames a thread reads.

    Args:
        address: HOST:PORT of the server.
        window: how many bytes the server may send on each stream before it must wait.
        answers_pings: whether PING frames are answered; an end that has vanished does not.

    Attributes:
        ended: the streams that the server has ended; with trailers, None if it was answered with OK, else its failure.
    """

    def __init__(self, address: str, window: int = _WINDOW, *, answers_pings: bool = True) -> None:
        host, _, port = address.rpartition(":")
        self.ended: dict[int, Failure | None] = {}
        self.gone = threading.Event()  # whether the server has closed the connection, or said that it will
        self.settings: dict[int, int] = {}
        self._answers_pings = answers_pings
        self._changed = threading.Condition()
        self._decoder = hpack.Decoder()
        self._encoder = hpack.Encoder()
        self._socket = socket.create_connection((host, int(port)), timeout=20)
        self._writing = threading.Lock()
        settings = {SettingsFrame.INITIAL_WINDOW_SIZE: window}
        self.write(PREFACE + SettingsFrame(0, settings=settings).serialize())
        if window:
            self.write(WindowUpdateFrame(0, window_increment=_WINDOW).serialize())
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def __enter__(self) -> RawConnection:
        return self

    def __exit__(self, *_exception: object) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    def write(self, data: bytes) -> bool:
        """Write bytes. Returns False if the connection is closed, or the server does not read for 20 seconds."""
        with self._writing:
            try:
                self._socket.sendall(data)
            except OSError:
                self.gone.set()
                return False
        return True

    def block(self, path: str = TRANSLATE, extra: Sequence[tuple[str, str]] = ()) -> bytes:
        """Return the header block of a call. It does not change the server's table, so it may be sent often."""
        fields = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", path),
            (":authority", "test"),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
            *extra,
        ]
        # NeverIndexed: the same bytes mean the same fields, however often and in whatever order they are sent
        return self._encoder.encode([hpack.NeverIndexedHeaderTuple(name, value) for name, value in fields])

    def wait_for_ends(self, count: int, seconds: float) -> bool:
        """Whether the server ends `count` streams, or closes the connection, within `seconds`. Waits for it."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self.ended) >= count or self.gone.is_set(), seconds)

    def _read(self) -> None:
        received = b""
        try:
            while data := self._receive():
                received += data
                while len(received) >= _FRAME_HEADER:
                    frame, length = Frame.parse_frame_header(memoryview(received[:_FRAME_HEADER]))
                    if len(received) < _FRAME_HEADER + length:
                        break
                    frame.parse_body(memoryview(received[_FRAME_HEADER : _FRAME_HEADER + length]))
                    received = received[_FRAME_HEADER + length :]
                    with self._changed:
                        self._take(frame)
                        self._changed.notify_all()
        except (OSError, HyperframeError, hpack.HPACKError):
            pass
        with self._changed:
            self.gone.set()
            self._changed.notify_all()

    def _receive(self) -> bytes:
        while True:
            try:
                return self._socket.recv(_RECEIVED_AT_ONCE)
            except TimeoutError:
                continue

    def _take(self, frame: Frame) -> None:
        if isinstance(frame, SettingsFrame) and "ACK" not in frame.flags:
            self.settings |= frame.settings
            self.write(SettingsFrame(0, flags=["ACK"]).serialize())
        elif isinstance(frame, PingFrame) and "ACK" not in frame.flags:
            if self._answers_pings:
                self.write(PingFrame(0, frame.opaque_data, flags=["ACK"]).serialize())
        elif isinstance(frame, GoAwayFrame):
            self.gone.set()
        elif isinstance(frame, HeadersFrame):
            fields = dict(self._decoder.decode(frame.data, raw=True))
            if "END_STREAM" in frame.flags:
                self.ended[frame.stream_id] = _failure(fields)
        elif isinstance(frame, RstStreamFrame):
            self.ended.setdefault(frame.stream_id, Failure(grpc.StatusCode.CANCELLED, message="RST_STREAM"))


def headers(stream: int, block: bytes, *, end_stream: bool = False) -> bytes:
    """Return a HEADERS frame, with CONTINUATION frames if the block is long."""
    parts = [block[start : start + 16384] for start in range(0, len(block), 16384)]
    written = b""
    for number, part in enumerate(parts):
        kind = 1 if number == 0 else 9
        flags = (4 if number == len(parts) - 1 else 0) | (1 if end_stream and number == 0 else 0)
        written += _frame(kind, flags, stream, part)
    return written


def data(stream: int, payload: bytes, *, end_stream: bool = False) -> bytes:
    """Return DATA frames."""
    parts = [payload[start : start + 16384] for start in range(0, len(payload), 16384)] or [b""]
    return b"".join(
        _frame(0, 1 if end_stream and number == len(parts) - 1 else 0, stream, part)
        for number, part in enumerate(parts)
    )


def reset(stream: int) -> bytes:
    """Return a RST_STREAM frame with CANCEL."""
    return _frame(3, 0, stream, struct.pack(">I", 8))


def ping() -> bytes:
    """Return a PING frame, which the other end must answer."""
    return _frame(6, 0, 0, bytes(8))


def settings() -> bytes:
    """Return a SETTINGS frame, which the other end must acknowledge."""
    return _frame(4, 0, 0, struct.pack(">HI", SettingsFrame.INITIAL_WINDOW_SIZE, _WINDOW))


def message(payload: bytes) -> bytes:
    """Return a message with gRPC's prefix: not compressed, and its length."""
    return b"\0" + struct.pack(">I", len(payload)) + payload


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    # A flood must be fast, and hyperframe takes six times as long.
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _failure(fields: Mapping[bytes, bytes]) -> Failure | None:
    named = {name.decode("latin-1"): value.decode("latin-1") for name, value in fields.items()}
    code = _CODES.get(int(named.get("grpc-status", "2")), grpc.StatusCode.UNKNOWN)
    if code is grpc.StatusCode.OK:
        return None
    packed = named.get("grpc-status-details-bin", "")
    return parsed(code, base64.b64decode(packed + "=" * (-len(packed) % 4)), named.get("grpc-message", ""))
