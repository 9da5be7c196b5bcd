"""The parent's end of the socket to a front end."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any, Protocol

from translane_server.dispatch.process_connection import Host, ProcessConnection
from translane_server.front_ends.messages import (
    Answer,
    Change,
    Collect,
    FrontEndSetup,
    Health,
    Ping,
    Pong,
    Question,
    Stopped,
)


class FrontEndGoneError(Exception):
    """The front end has ended, or has not started yet."""


class FrontEndListener(Protocol):
    """Learns what a front end tells. All methods are called on the event loop."""

    def told_health(self, health: Health) -> None:
        """The front end has told whether it serves."""

    def told_end(self, stopped: Stopped) -> None:
        """The front end has drained, as it was asked to; or it has ended in another way."""


class FrontEndConnection(ProcessConnection):
    """A front end at the other end of a socket. Implements `SupervisedProcess`.

    Args:
        setup: the setup of the front end.
        host: runs the front end.
        news: learns what the front end tells.
    """

    def __init__(self, setup: FrontEndSetup, host: Host, news: FrontEndListener) -> None:
        super().__init__(f"front end {setup.number}", setup, host)
        self._news = news
        self._numbers = itertools.count()
        self._answers: dict[int, asyncio.Future[Any]] = {}

    def ask(self) -> None:
        """Ask for a sign of life."""
        self._write(Ping())

    def send(self, message: object) -> None:
        """Send an order. A front end that does not serve misses it."""
        if self._serves:
            self._write(message)

    async def answer(self, content: Collect | Change) -> Any:
        """Ask the front end a question, and wait for its answer.

        Raises:
            FrontEndGoneError: the front end does not serve, or ends before it answers.
        """
        if not self._serves or self._transport is None:
            raise FrontEndGoneError
        number = next(self._numbers)
        answer = self._answers[number] = self._loop.create_future()
        try:
            self._write(Question(number, content))
            return await answer
        finally:
            self._answers.pop(number, None)

    @property
    def _notices_end(self) -> bool:
        return self.heard > 0  # its event loop runs, and ends what it has started

    def _take(self, message: Any) -> None:
        if isinstance(message, Answer):
            answer = self._answers.get(message.number)
            if answer and not answer.done():  # nobody waits any more for an answer that comes too late
                answer.set_result(message.content)
        elif isinstance(message, Health):
            self._news.told_health(message)
        elif isinstance(message, Stopped):
            self._stopping = True  # that it ends now is no loss
            self._news.told_end(message)

    def _take_first(self, message: Any) -> None:
        if not isinstance(message, Pong):  # it loads its models, and its event loop runs
            super()._take_first(message)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._serves and not self._stopping:
            self._news.told_end(Stopped(drained=False))
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(FrontEndGoneError())
