"""The calls that are open, and the limits on them: how many, of how many bytes, for how long, and whose."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import grpc

from translane_server.api.reading_slots import ReadingSlots
from translane_server.api.timeouts import Timeouts
from translane_server.errors import (
    FieldViolation,
    InvalidRequestError,
    MessageTimeoutError,
    MessageTooLargeError,
    RequestError,
    RequestTimeoutError,
    TooManyBytesError,
    TooManyCallsError,
)

Context = grpc.aio.ServicerContext[Any, Any]

# Calls that receive their messages at the same time. gRPC holds the beginning of a message of each.
READING = 96

# From this time on, a call whose message has not come makes way for other calls [seconds]. A message that is sent
# together with its call comes much sooner.
PATIENCE = 0.1

# Health checks that are answered beside the limit of calls, so that a busy server is not taken for a broken one.
_PROBES = 64

# How long a refused caller should wait before it tries again [seconds].
_RETRY_AFTER = 1.0

_EOF = grpc.aio.EOF  # type: ignore[attr-defined]  # missing from the stubs

# gRPC reports a cancelled call first as one that has no more messages. Then it cancels the call's task, within this
# time [seconds].
_CANCELLATION_TIME = 0.05


@dataclass(frozen=True)
class CallLimits:
    """Limits of the calls that are open together.

    Attributes:
        calls: most open calls.
        message_bytes: largest message [bytes].
        bytes_in_flight: most bytes of messages, each counted from when it has come until its call is answered.
        caller_share: share of `calls` and `bytes_in_flight` that one caller may take, above 0 and at most 1.
        message_timeout: longest time until a call's message has come [seconds].
        request_timeout: longest time of a call [seconds].
    """

    calls: int = 2048
    message_bytes: int = 1024 * 1024
    bytes_in_flight: int = 16 * 1024 * 1024
    caller_share: float = 0.5
    message_timeout: float = 10.0
    request_timeout: float = 300.0


class _Use:
    """What is taken of the limits, by one caller or by all."""

    __slots__ = ("calls", "size")

    def __init__(self) -> None:
        self.calls = 0
        self.size = 0


class OpenCall:
    """An open call.

    Attributes:
        caller: who calls.
        connection: the connection that the call comes from.
        size: bytes of the call's message, once it has come.
        refusal: why the server ends the call; None as long as it does not.
        writing: whether a message is on its way to the caller. gRPC takes no status until it has gone.
    """

    __slots__ = ("_task", "caller", "connection", "refusal", "size", "writing")

    def __init__(self, caller: str, connection: str, task: asyncio.Task[Any]) -> None:
        self.caller = caller
        self.connection = connection
        self._task = task
        self.size = 0
        self.refusal: RequestError | None = None
        self.writing = False

    def end(self, refusal: RequestError) -> None:
        """Make the task that answers the call answer with `refusal`: at once, or when the message is written."""
        self.refusal = refusal
        if not self.writing:
            self._task.cancel()

    async def write(self, context: Context, message: Any) -> None:
        """Send a message to the caller, and wait until gRPC has taken it.

        Raises:
            RequestError: the server ends the call.
        """
        self.writing = True
        try:
            await context.write(message)
        finally:
            self.writing = False
        if self.refusal:
            raise self.refusal


class OpenCalls:
    """All open calls of a server. A call enters when its headers have come, and leaves when its task has ended.

    gRPC's task ends when the answer is sent. So a caller who does not read an answer keeps a place.
    """

    def __init__(self, limits: CallLimits) -> None:
        self._limits = limits
        self._calls_of_a_caller = max(1, int(limits.calls * limits.caller_share))
        self._bytes_of_a_caller = max(limits.message_bytes, int(limits.bytes_in_flight * limits.caller_share))
        self._all = _Use()
        self._callers: dict[str, _Use] = {}
        self._slots: ReadingSlots[OpenCall] = ReadingSlots(READING, PATIENCE, self._make_way)
        self._unread: Timeouts[OpenCall] = Timeouts(limits.message_timeout, self._message_is_late)
        self._running: Timeouts[OpenCall] = Timeouts(limits.request_timeout, self._is_late)

    @property
    def count(self) -> int:
        """Number of open calls."""
        return self._all.calls

    @property
    def size(self) -> int:
        """Bytes of the messages of all open calls."""
        return self._all.size

    def enter(self, caller: str, connection: str, *, probe: bool = False, endless: bool = False) -> OpenCall:
        """Count a call, whose task is the current one, until the task ends.

        Args:
            caller: who calls.
            connection: gRPC's name of the connection.
            probe: whether the call asks for the server's health, and is not to be refused on a busy server.
            endless: whether the call has no longest time.

        Raises:
            TooManyCallsError: too many calls are open, all together or of this caller.
        """
        task = asyncio.current_task()
        assert task is not None
        use = self._callers.get(caller)
        if self._all.calls >= self._limits.calls + (_PROBES if probe else 0):
            self._make_room()
            raise TooManyCallsError("as many calls are open as this server takes", _RETRY_AFTER)
        if use is None:
            use = self._callers[caller] = _Use()
        elif use.calls >= self._calls_of_a_caller and not probe:
            self._make_room()
            raise TooManyCallsError(
                f"{use.calls} calls of this caller are open, as many as one caller may have", _RETRY_AFTER
            )
        self._all.calls += 1
        use.calls += 1
        call = OpenCall(caller, connection, task)
        if not endless:
            self._running.start(call)
        task.add_done_callback(lambda _task: self._leave(call))
        return call

    async def first_message(self, call: OpenCall, context: Context) -> bytes:
        """Receive the message of a call.

        Raises:
            InvalidRequestError: the call has ended without a message.
            MessageTooLargeError: the message is too large.
            TooManyBytesError: the messages of all open calls, or of this caller, have too many bytes.
            asyncio.CancelledError: the caller cancels, or `call.refusal` says why.
        """
        self._unread.start(call)
        try:
            message = await self._read(call, context)
        finally:
            self._unread.stop(call)
        if message is _EOF:
            await asyncio.sleep(_CANCELLATION_TIME)
            raise InvalidRequestError(FieldViolation("request", "is missing: the call has no message"))
        return self._take(call, message)

    async def next_message(self, call: OpenCall, context: Context) -> bytes | None:
        """Receive another message of a call, which takes the place of the message before; None if there is none.

        Raises: as `first_message`, but for InvalidRequestError.
        """
        message = await self._read(call, context)
        return None if message is _EOF else self._take(call, message)

    def finished(self, call: OpenCall) -> None:
        """Stop the time of a call. From now on it is not cancelled."""
        self._running.stop(call)
        self._unread.stop(call)

    async def _read(self, call: OpenCall, context: Context) -> Any:
        await self._slots.take(call)
        try:
            return await context.read()
        finally:
            self._slots.release(call)

    def _take(self, call: OpenCall, message: bytes) -> bytes:
        size = len(message)
        limits = self._limits
        if size > limits.message_bytes:
            raise MessageTooLargeError(f"the message has {size} bytes, and {limits.message_bytes} are allowed")
        use = self._callers[call.caller]
        more = size - call.size
        if self._all.size + more > limits.bytes_in_flight:
            raise TooManyBytesError("the open calls have as many bytes as this server takes at once", _RETRY_AFTER)
        if use.size + more > self._bytes_of_a_caller:
            raise TooManyBytesError(
                f"the open calls of this caller have {use.size} bytes, and {self._bytes_of_a_caller} are allowed",
                _RETRY_AFTER,
            )
        self._all.size += more
        use.size += more
        call.size = size
        return message

    def _leave(self, call: OpenCall) -> None:
        self.finished(call)
        use = self._callers[call.caller]
        use.calls -= 1
        use.size -= call.size
        self._all.calls -= 1
        self._all.size -= call.size
        if not use.calls:
            del self._callers[call.caller]

    def _make_room(self) -> None:
        """End calls that have waited for their messages for long, so that the next calls find room."""
        for _ in range(READING):
            if (oldest := self._unread.pop_oldest(PATIENCE)) is None:
                return
            self._make_way(oldest)

    def _make_way(self, call: OpenCall) -> None:
        call.end(TooManyCallsError("its message has not come, and other calls wait for theirs", _RETRY_AFTER))

    def _message_is_late(self, call: OpenCall) -> None:
        call.end(MessageTimeoutError(f"no message came within {self._limits.message_timeout:g} seconds"))

    def _is_late(self, call: OpenCall) -> None:
        call.end(RequestTimeoutError(f"not answered within {self._limits.request_timeout:g} seconds"))
