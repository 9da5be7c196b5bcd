"""Who may receive a message now. gRPC holds as much of a message as has come, and only of calls that receive."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from translane_server.api.timeouts import Timeouts


class Reader(Protocol):
    """A call that receives a message, and the connection that it comes from."""

    connection: str


_Reader = TypeVar("_Reader", bound=Reader)


class ReadingSlots(Generic[_Reader]):
    """A number of slots, half of them at most for one connection. A call has a slot while it receives a message.

    A message that is sent together with its call takes a slot for a moment. A call that has its slot for longer than
    `patience` loses it as soon as another call waits for one. Connections get free slots in turn. The newest call of a
    connection goes first, because it is the likeliest to have its message.

    Args:
        slots: number of slots.
        patience: time for which a call keeps its slot, whoever waits [seconds].
        give_up: is called with a call that loses its slot. The call must then `release` the slot.
    """

    def __init__(self, slots: int, patience: float, give_up: Callable[[_Reader], None]) -> None:
        self._free = slots
        self._slots_of_a_connection = max(1, slots // 2)
        self._give_up = give_up
        self._taken: dict[str, int] = {}  # by connection
        self._waiting: dict[str, dict[asyncio.Future[None], None]] = {}  # by connection, whose turn is next first
        self._fresh: Timeouts[_Reader] = Timeouts(patience, self._is_slow)
        self._reading: set[_Reader] = set()
        self._slow: dict[_Reader, None] = {}  # calls beyond their patience, the oldest first

    async def take(self, call: _Reader) -> None:
        """Wait for a slot.

        Raises:
            asyncio.CancelledError: the call is cancelled. It has no slot.
        """
        if self._may_take(call.connection):
            self._count(call.connection)
        else:
            await self._wait(call.connection)
        self._reading.add(call)
        self._fresh.start(call)

    def release(self, call: _Reader) -> None:
        """Give back the slot of `call`."""
        self._reading.discard(call)
        self._fresh.stop(call)
        self._slow.pop(call, None)
        self._uncount(call.connection)

    def _may_take(self, connection: str) -> bool:
        return self._free > 0 and self._taken.get(connection, 0) < self._slots_of_a_connection

    def _count(self, connection: str) -> None:
        self._free -= 1
        self._taken[connection] = self._taken.get(connection, 0) + 1

    def _uncount(self, connection: str) -> None:
        self._free += 1
        self._taken[connection] -= 1
        if not self._taken[connection]:
            del self._taken[connection]
        while (each := self._next()) is not None and not self._wake(each):
            pass

    async def _wait(self, connection: str) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(connection, {})[turn] = None
        self._end_slow(connection)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # its turn and the cancellation came together
                self._uncount(connection)
            elif turns := self._waiting.get(connection):
                turns.pop(turn, None)
                if not turns:
                    del self._waiting[connection]
            raise

    def _next(self) -> str | None:
        """The connection whose turn is next."""
        for each in self._waiting:  # at most two connections have all slots that they may have
            if self._may_take(each):
                return each
        return None

    def _wake(self, connection: str) -> bool:
        """Give a slot to the newest call of `connection` that waits for one. Return whether there is such a call."""
        turns = self._waiting.pop(connection)
        while turns:
            turn, _ = turns.popitem()
            if not turn.done():  # a call that is cancelled has not run yet
                self._count(connection)
                turn.set_result(None)
                if turns:
                    self._waiting[connection] = turns
                return True
        return False

    def _end_slow(self, connection: str) -> None:
        """End the oldest slow call whose slot `connection` may take."""
        own = self._taken.get(connection, 0) >= self._slots_of_a_connection
        for call in self._slow:
            if not own or call.connection == connection:
                del self._slow[call]
                self._give_up(call)
                return

    def _is_slow(self, call: _Reader) -> None:
        # After a pause of the event loop, messages have come that the calls have not seen yet. They see them now.
        asyncio.get_running_loop().call_soon(self._decide, call)

    def _decide(self, call: _Reader) -> None:
        if call not in self._reading:
            return
        if call.connection in self._waiting or (self._waiting and not self._free):
            self._give_up(call)
        else:
            self._slow[call] = None
