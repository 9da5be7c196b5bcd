"""Forwards calls to the server's own gRPC service, over its private socket."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import grpc

Metadata = Sequence[tuple[str, str]]

_OPTIONS: list[tuple[str, int]] = [
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),  # otherwise all channels would share a connection
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
]


class Forwarder:
    """Calls methods with messages in binary form.

    A connection has a limited number of calls at once, and more would wait in the client, where no limit of the server
    reaches them. So there are as many connections as the open calls need.

    Args:
        address: gRPC's name of the server's socket.
        calls: most calls of a connection at once.
    """

    def __init__(self, address: str, calls: int) -> None:
        self._address = address
        self._calls = calls
        self._channels: list[_Channel] = []

    async def unary(self, path: str, message: bytes, metadata: Metadata, seconds: float | None) -> bytes:
        """Return the answer of a method.

        Args:
            path: the method's path, such as `/translane.v1.TranslationService/Translate`.
            message: the request.
            metadata: metadata of the call.
            seconds: time until the caller's deadline; None without one.

        Raises:
            grpc.aio.AioRpcError: the call failed.
        """
        with self._channel() as channel:
            answer: bytes = await channel.unary(path)(message, metadata=metadata, timeout=seconds)
            return answer

    async def stream(
        self, path: str, message: bytes, metadata: Metadata, seconds: float | None
    ) -> AsyncGenerator[bytes, None]:
        """Yield the answers of a method. If the generator is closed, the call is cancelled.

        Args and errors: as `unary`.
        """
        with self._channel() as channel:
            call = channel.stream(path)(message, metadata=metadata, timeout=seconds)
            try:
                async for answer in call:
                    yield answer
            finally:
                call.cancel()

    async def close(self) -> None:
        """Close all connections. Calls that run are cancelled."""
        for channel in self._channels:
            await channel.channel.close(None)
        self._channels.clear()

    @contextmanager
    def _channel(self) -> Iterator[_Channel]:
        channel = next((channel for channel in self._channels if channel.calls < self._calls), None)
        if channel is None:
            channel = _Channel(grpc.aio.insecure_channel(self._address, options=_OPTIONS))
            self._channels.append(channel)
        channel.calls += 1
        try:
            yield channel
        finally:
            channel.calls -= 1


class _Channel:
    """A connection, its methods, and how many calls it has."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self.calls = 0
        self._unary: dict[str, Any] = {}
        self._stream: dict[str, Any] = {}

    def unary(self, path: str) -> Any:
        if path not in self._unary:
            self._unary[path] = self.channel.unary_unary(path, None, None)
        return self._unary[path]

    def stream(self, path: str) -> Any:
        if path not in self._stream:
            self._stream[path] = self.channel.unary_stream(path, None, None)
        return self._stream[path]
