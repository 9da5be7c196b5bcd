"""Which calls are taken: how many are open, of how many bytes, for how long, and whose."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from translane_server.access.authenticator import KeyRing
from translane_server.api.call import Call, Transport, caller_of
from translane_server.core.errors import (
    FieldViolation,
    InvalidRequestError,
    MessageTimeoutError,
    MessageTooLargeError,
    RequestTimeoutError,
    TooManyBytesError,
    TooManyCallsError,
)
from translane_server.settings.server_settings import ServerSettings

# Calls that receive their messages at the same time. gRPC holds the beginning of a message of each.
READING = 96

# While calls are open, their times are looked at every so often [seconds].
_TICK = 0.1

# Turns of the event loop until a call has seen a message that came during a pause of it: uvloop calls timers before it
# reads, and a call sees its message in the turn after the one that reads it.
_TURNS = 3

# From this time on, a call whose message has not come makes way for other calls [seconds]. A message that is sent
# together with its call comes much sooner. A little less than a tick, so that a call which begins at one makes way at
# the next.
_PATIENCE = 0.09

# Health checks that are answered beside the limit of calls, so that a busy server is not taken for a broken one; and
# those of one caller, which needs no key.
_PROBES, _PROBES_OF_A_CALLER = 64, 32

# How long a refused caller should wait before it tries again [seconds].
_RETRY_AFTER = 1.0

# gRPC reports a cancelled call first as one that has no more messages. Then it cancels the call's task, within this
# time [seconds].
_CANCELLATION_TIME = 0.05


@dataclass(slots=True)
class Use:
    """What open calls take of the limits: those of one caller, or all."""

    calls: int = 0
    probes: int = 0  # health checks among the calls
    watchers: int = 0  # calls without an end among the calls, which need no key
    size: int = 0  # bytes of their messages


class Admission:
    """All open calls of a server. A call enters when its headers have come, and leaves when its task has ended.

    gRPC's task ends when the answer is sent. So a caller who does not read an answer keeps a place.
    """

    def __init__(self, settings: ServerSettings, keys: KeyRing | None = None) -> None:
        self._settings = settings
        self._keys = keys
        self._caller_header = settings.caller_header.lower()
        self._calls_of_a_caller = max(1, int(settings.max_calls * settings.caller_share))
        share_of_bytes = int(settings.max_bytes_in_flight * settings.caller_share)
        self._bytes_of_a_caller = max(settings.max_message_bytes, share_of_bytes)
        self.open = Use()  # what all open calls take
        self._callers: dict[str, Use] = {}
        self._running: dict[Call, None] = {}  # calls with a longest time
        self._unread: dict[Call, None] = {}  # calls whose message has not come, in the order of their arrival
        self._slots = ReadingSlots(READING, _PATIENCE, _make_way)
        self._looked = 0.0  # when their times were looked at
        self._ticks = False

    def enter(self, call: Call) -> None:
        """Find out who calls, and count the call as open until the current task ends, which answers it.

        Raises:
            RequestError: the key of the call is not accepted.
            TooManyCallsError: too many calls are open, all together or of this caller.
        """
        method = call.method
        if self._keys and method.needs_key:
            call.allowance = allowance = self._keys.admit(call.metadata, call.peer)
            call.caller = caller = allowance.name
            call.note(key=caller)
        else:
            call.caller = caller = caller_of(call.metadata, call.certificate, call.peer, self._caller_header)
        use = self._callers.get(caller) or Use()
        if method.is_probe:
            of_all, most = self.open.probes, _PROBES
            of_caller, share = use.probes, _PROBES_OF_A_CALLER
        else:
            of_all, most = self.open.calls - self.open.probes, self._settings.max_calls
            of_caller, share = use.calls - use.probes, self._calls_of_a_caller
        if of_all >= most:
            self._make_room()
            raise TooManyCallsError("as many calls are open as this server takes", _RETRY_AFTER)
        # Strangers, of whom one has many addresses, leave half of the places to those who have keys.
        if self._keys and method.is_endless and self.open.watchers >= max(1, most // 2):
            raise TooManyCallsError("as many callers watch its health as this server takes", _RETRY_AFTER)
        if of_caller >= share:
            self._make_room()
            raise TooManyCallsError(
                f"{of_caller} calls of this caller are open, as many as one caller may have", _RETRY_AFTER
            )
        self._callers[caller] = use
        self.open.calls += 1
        self.open.probes += method.is_probe
        self.open.watchers += method.is_endless
        use.calls += 1
        use.probes += method.is_probe
        if not method.is_endless:
            self._running[call] = None
        if not self._ticks:
            self._tick()
        call.task = task = asyncio.current_task()
        assert task is not None
        task.add_done_callback(partial(self._leave, call))

    async def read(self, call: Call, transport: Transport) -> bytes:
        """Receive the message of a call.

        Raises:
            InvalidRequestError: the call has ended without a message.
            MessageTooLargeError: the message is too large.
            TooManyBytesError: the messages of all open calls, or of this caller, have too many bytes.
            asyncio.CancelledError: the caller cancels, or `call.refusal` says why.
        """
        self._unread[call] = None
        try:
            message = await self._slots.read(call, transport)
        finally:
            self._unread.pop(call, None)
        if message is None:
            await asyncio.sleep(_CANCELLATION_TIME)
            raise InvalidRequestError(FieldViolation("request", "is missing: the call has no message"))
        self.take(call, len(message), transport.expansion)
        return message

    async def read_next(self, call: Call, transport: Transport) -> bytes | None:
        """Receive another message of a call, which takes the place of the message before; None if there is none.

        Raises: as `read`, but for InvalidRequestError.
        """
        message = await self._slots.read(call, transport)
        if message is not None:
            self.take(call, len(message), transport.expansion)
        return message

    def finished(self, call: Call) -> None:
        """Stop the time of a call. From now on it is not ended."""
        self._running.pop(call, None)

    def take(self, call: Call, size: int, expansion: int = 1) -> None:
        """Count the bytes of a call's message, of which this many have come by now.

        Raises:
            MessageTooLargeError: the message is too large.
            TooManyBytesError: the messages of all open calls, or of this caller, have too many bytes.
        """
        largest = self.check_size(size, expansion)
        use = self._callers[call.caller]
        more = size - call.size
        if self.open.size + more > max(self._settings.max_bytes_in_flight, largest):
            raise TooManyBytesError("the open calls have as many bytes as this server takes at once", _RETRY_AFTER)
        most = max(self._bytes_of_a_caller, largest)
        if use.size + more > most:
            raise TooManyBytesError(
                f"the open calls of this caller have {use.size} bytes, and {most} are allowed", _RETRY_AFTER
            )
        self.open.size += more
        use.size += more
        call.size = size

    def check_size(self, size: int, expansion: int) -> int:
        """Return the size of the largest message [bytes]. Raise MessageTooLargeError if this one is larger."""
        largest = expansion * self._settings.max_message_bytes
        if size > largest:
            raise MessageTooLargeError(f"the message has {size} bytes, and {largest} are allowed")
        return largest

    def _leave(self, call: Call, _task: asyncio.Task[Any]) -> None:
        use = self._callers[call.caller]
        use.calls -= 1
        use.probes -= call.method.is_probe
        use.size -= call.size
        self.open.calls -= 1
        self.open.probes -= call.method.is_probe
        self.open.watchers -= call.method.is_endless
        self.open.size -= call.size
        if not use.calls:
            del self._callers[call.caller]

    def _make_room(self) -> None:
        """End calls that have waited for their messages for long, so that the next calls find room."""
        for _ in range(READING):
            if (oldest := self._take_oldest_unread(_PATIENCE)) is None:
                return
            _make_way(oldest)

    def _tick(self) -> None:
        self._ticks = True
        asyncio.get_running_loop().call_later(_TICK, self._look, _TURNS)

    def _look(self, turns: int = 0) -> None:
        """End the calls whose time is over, after so many turns of the event loop."""
        if turns:
            asyncio.get_running_loop().call_soon(self._look, turns - 1)
            return
        settings = self._settings
        self._looked = time.monotonic()
        self._ticks = False
        if not (self._running or self._unread):
            return
        while call := self._take_oldest_unread(settings.message_timeout):
            call.end(MessageTimeoutError(f"no message came within {settings.message_timeout:g} seconds"))
        # All are looked at: a call that gets on may end after younger ones.
        last = self._looked - settings.request_timeout
        for call in [each for each in self._running if each.started <= last and each.progressed <= last]:
            del self._running[call]
            call.end(RequestTimeoutError(f"not answered within {settings.request_timeout:g} seconds"))
        self._slots.look(self._looked)
        if self._running or self._unread:
            self._tick()

    def _take_oldest_unread(self, age: float) -> Call | None:
        """Remove the call that began first, and return it; None if it was younger than `age` at the last look."""
        call = next(iter(self._unread), None)
        if call is None or self._looked - call.started < age:
            return None
        del self._unread[call]
        return call


def _make_way(call: Call) -> None:
    call.end(TooManyCallsError("its message has not come, and other calls wait for theirs", _RETRY_AFTER))


class ReadingSlots:
    """A number of slots, half of them at most for one connection. A call has a slot while it receives a message.

    gRPC holds as much of a message as has come, and only of calls that receive. A message that is sent together with
    its call takes a slot for a moment. A call that has its slot for longer than `patience` loses it as soon as another
    call waits for one. Connections get free slots in turn. The newest call of a connection goes first, because it is
    the likeliest to have its message. `give_up` ends a call that loses its slot.
    """

    def __init__(self, slots: int, patience: float, give_up: Callable[[Call], None]) -> None:
        self._free = slots
        self._slots_of_a_connection = max(1, slots // 2)
        self._patience = patience
        self._give_up = give_up
        self._looked = 0.0
        self._taken: dict[str, int] = {}  # by connection
        self._waiting: dict[str, dict[asyncio.Future[None], None]] = {}  # by connection, whose turn is next first
        self._reading: dict[Call, float] = {}  # since when, the oldest first

    async def read(self, call: Call, transport: Transport) -> bytes | None:
        """Wait for a slot, and receive a message; None if there are no more.

        Raises:
            asyncio.CancelledError: the caller cancels, or `call.refusal` says why.
        """
        connection = call.peer
        if not self._take(connection):
            await self._wait(connection)
        self._reading[call] = time.monotonic()
        try:
            return await transport.read()
        finally:
            self._reading.pop(call, None)
            self._give_back(connection)

    def look(self, now: float) -> None:
        """Let calls that wait take the slots of calls that are slow by `now` [seconds of `time.monotonic`]."""
        self._looked = now
        for connection, turns in self._waiting.items():
            for _ in turns:
                if not self._end_slow(connection):
                    break

    def _take(self, connection: str) -> bool:
        """Take a slot for a connection. Return whether it may have one."""
        taken = self._taken.get(connection, 0)
        if not self._free or taken >= self._slots_of_a_connection:
            return False
        self._free -= 1
        self._taken[connection] = taken + 1
        return True

    def _give_back(self, connection: str | None) -> None:
        """Give a slot back. The newest call that waits for one of the connection whose turn is next gets it."""
        while connection is not None:
            self._free += 1
            self._taken[connection] -= 1
            if not self._taken[connection]:
                del self._taken[connection]
            # At most two connections have all slots that they may have, so the next one is found soon.
            connection = next(filter(self._take, self._waiting), None)
            turns = {} if connection is None else self._waiting.pop(connection)
            while turns:
                turn, _ = turns.popitem()
                if not turn.done():  # a call that is cancelled has not run yet
                    turn.set_result(None)
                    if turns and connection is not None:
                        self._waiting[connection] = turns
                    return

    async def _wait(self, connection: str) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(connection, {})[turn] = None
        self._end_slow(connection)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # its turn and the cancellation came together
                self._give_back(connection)
            elif turns := self._waiting.get(connection):
                turns.pop(turn, None)
                if not turns:
                    del self._waiting[connection]
            raise

    def _end_slow(self, connection: str) -> bool:
        """End the oldest slow call whose slot `connection` may take. Return whether there is one.

        Calls are slow by the last look, and not by now: see `Admission`.
        """
        own = self._taken.get(connection, 0) >= self._slots_of_a_connection
        for call, since in self._reading.items():
            if self._looked - since < self._patience:
                return False
            if not own or call.peer == connection:
                del self._reading[call]
                self._give_up(call)
                return True
        return False
