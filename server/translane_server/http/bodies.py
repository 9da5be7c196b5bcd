"""Receives the bodies of requests: of bounded size, in bounded time, and with a bound for all of them together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from translane_server.core.errors import MessageTimeoutError, MessageTooLargeError, TooManyBytesError

Receive = Callable[[], Awaitable[Any]]

# How long a refused caller should wait before it tries again [seconds].
_RETRY_AFTER = 1.0


class ClientGoneError(Exception):
    """The client went away before its request was whole."""


class Bodies:
    """The bodies of requests that are received or answered.

    Args:
        body_bytes: largest body [bytes].
        all_bytes: most bytes of all bodies together.
        share: share of `all_bytes` that one caller may take, above 0 and at most 1.
        seconds: longest time until a body has come.
    """

    def __init__(self, body_bytes: int, all_bytes: int, share: float, seconds: float) -> None:
        self._body_bytes = body_bytes
        self._all_bytes = max(all_bytes, body_bytes)
        self._bytes_of_a_caller = max(body_bytes, int(all_bytes * share))
        self._seconds = seconds
        self._taken = 0
        self._callers: dict[str, int] = {}

    @property
    def size(self) -> int:
        """Bytes of all bodies."""
        return self._taken

    @contextmanager
    def place(self, caller: str) -> Iterator[Body]:
        """A place for the body of a request, for as long as the request takes."""
        body = Body(caller)
        try:
            yield body
        finally:
            self._take(caller, -body.size)

    async def receive(self, body: Body, receive: Receive, declared: int | None) -> bytes:
        """Return the body of a request.

        Args:
            body: its place.
            receive: ASGI's function.
            declared: size of the body, if the request names it [bytes].

        Raises:
            MessageTooLargeError: the body is too large.
            TooManyBytesError: all bodies are too large together, or all bodies of the caller.
            MessageTimeoutError: the body did not come in time.
            ClientGoneError: the client has gone.
        """
        if declared is not None and declared > self._body_bytes:
            raise self._too_large()
        parts: list[bytes] = []
        try:
            async with asyncio.timeout(self._seconds):
                while True:
                    event = await receive()
                    if event["type"] != "http.request":
                        raise ClientGoneError
                    part = event.get("body", b"")
                    if body.size + len(part) > self._body_bytes:
                        raise self._too_large()
                    self._take(body.caller, len(part))
                    body.size += len(part)
                    parts.append(part)
                    if not event.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            raise MessageTimeoutError(f"no whole body came within {self._seconds:g} seconds") from None

    def _take(self, caller: str, size: int) -> None:
        of_caller = self._callers.get(caller, 0) + size
        if size > 0:
            if self._taken + size > self._all_bytes:
                raise TooManyBytesError("the open requests have as many bytes as this server takes", _RETRY_AFTER)
            if of_caller > self._bytes_of_a_caller:
                raise TooManyBytesError(
                    f"the open requests of this caller have more than {self._bytes_of_a_caller} bytes", _RETRY_AFTER
                )
        self._taken += size
        if of_caller:
            self._callers[caller] = of_caller
        else:
            self._callers.pop(caller, None)

    def _too_large(self) -> MessageTooLargeError:
        return MessageTooLargeError(f"the body has more than {self._body_bytes} bytes")


class Body:
    """The place of a body.

    Attributes:
        caller: whose it is.
        size: bytes that have come.
    """

    __slots__ = ("caller", "size")

    def __init__(self, caller: str) -> None:
        self.caller = caller
        self.size = 0
