"""A worker as the dispatcher has it: what it is sent, and how it comes back after a loss."""

from __future__ import annotations

import asyncio
import enum
import logging
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from translane_server.core.errors import StartupError
from translane_server.engine.sequence import EngineOutput
from translane_server.workers.connection import WorkerConnection
from translane_server.workers.inflight import AcceptedSequence

if TYPE_CHECKING:
    from translane_server.workers.dispatcher import Dispatcher

_log = logging.getLogger(__name__)

# The work that may wait in a worker, for each of its rows: expected tokens. What waits there goes before a caller who
# comes later. So long sentences of many rows wait in the queue, where callers have their turns, and few of them here.
_WAITING_TOKENS = 64

_TICK = 1.0  # time between two looks at a worker [seconds]

# A worker that has not answered for so many looks may hang. It is trusted again when it answers.
_RESPONSIVE_TICKS = 2

# A worker that computes, but does not answer, gets this many times as long as one that does nothing. So does the first
# life while it loads the model: it may wait for a slow disk.
_PATIENCE = 10

# A worker that is lost is replaced at once. After the second loss in a row the next life waits, each time twice as long
# [seconds]. After many losses in a row the worker counts as failing, and is still tried for ever. A loss by a known
# suspect does not count, and a life that has given results, or has lasted some time [seconds], begins the count anew.
_LASTING = 60.0
_FIRST_DELAY, _LONGEST_DELAY = 0.1, 60.0
_MOST_LOSSES = 5
_MOST_DOUBLINGS = 16
_CAUTIOUS = 4  # sequences of a life that follows one without results


class State(enum.Enum):
    """Where a worker is in its lives."""

    RESTING = "has no process"
    STARTING = "loads the model, and none was lost before"
    UP = "takes sequences"
    LOST = "has ended, and is to be replaced"
    FAILING = "has ended, as have many in its place"
    STOPPED = "is ended for good"


_NEXT = {
    State.RESTING: {State.STARTING, State.STOPPED},
    State.STARTING: {State.UP, State.RESTING, State.STOPPED},
    State.UP: {State.LOST, State.RESTING, State.STOPPED},
    State.LOST: {State.UP, State.FAILING, State.STOPPED},
    State.FAILING: {State.FAILING, State.UP, State.STOPPED},
    State.STOPPED: {State.STOPPED},
}


@dataclass(eq=False)
class Worker:
    """A worker that comes back, and the load that it has. Its sequences decode in order, as soon as rows are free."""

    new_connection: Callable[[], WorkerConnection]  # makes a connection, not yet started, for the next life
    _: KW_ONLY
    threads: int = 1  # number of CPUs that a life needs while it has sequences
    # the time after which a life that neither answers nor computes is replaced [seconds]; 0 waits for ever
    patience: float = 0
    # called for each life that ends without being stopped, and for each that does not start
    count_loss: Callable[[], None] = lambda: None
    on_stopped: Callable[[], None] = lambda: None  # called on a thread when the worker is stopped for good
    clock: Callable[[], float] = time.monotonic  # monotonic [seconds]

    def __post_init__(self) -> None:
        self.connection = self.new_connection()
        self.capacity = self.connection.rows  # maximum number of hypotheses that decode at once
        self.sequences: dict[int, AcceptedSequence] = {}  # number of a sequence -> the sequence
        self.rows = 0  # maximum number of rows that all its sequences take
        self.active_rows = 0  # maximum number of rows that its decoding sequences take
        self.waiting: dict[int, int] = {}  # number of a sequence without rows -> its cost
        self._waiting_cost = 0
        self._most = 2 * self.capacity  # sequences
        # Numbers of the sequences that were sent since the last output, and between the last two.
        self._new: list[int] = []
        self._newer: list[int] = []
        self.state = State.RESTING  # where the worker is in its lives
        self._dispatcher: Dispatcher
        self._losses = 0  # in a row
        self._up_since = 0.0
        self._watching: asyncio.Task[None] | None = None  # ends the present life if it hangs
        self._replacing: asyncio.Task[None] | None = None  # brings the next life
        self._missed = 0  # looks at the present life since its last answer
        self._has_results = False  # of the present life
        self.is_starved = False  # the present life ends for lack of memory
        self._broke_early = False  # the present life has ended as soon as it had started

    @property
    def is_responsive(self) -> bool:
        """Whether the worker has given a sign of life in the last seconds."""
        return self._missed <= _RESPONSIVE_TICKS

    def _enter(self, state: State) -> None:
        assert state in _NEXT[self.state], f"a worker that {self.state.value} cannot be one that {state.value}"
        self.state = state

    # Load

    def take(self, sequence: AcceptedSequence) -> bool:
        """Let the worker decode a sequence, if it has room. Return whether it has.

        The sequences of a worker may take twice the rows that it has. The waiting ones are encoded together, before
        rows are free, and then fill free rows at once. Sequences of much work do not wait here in numbers. After a life
        without results the next one begins with few sequences, among which the one at fault is found soon.
        """
        number, rows = sequence.number, sequence.sentence.options.rows
        if self.rows + rows > 2 * self.capacity or len(self.sequences) >= self._most:
            return False
        if self.waiting and self._waiting_cost + sequence.cost() > _WAITING_TOKENS * self.capacity:
            return False
        self.sequences[number] = sequence
        self._newer.append(number)
        self.rows += rows
        if self.waiting or self.active_rows + rows > self.capacity:
            self.waiting[number] = cost = sequence.cost()
            self._waiting_cost += cost
        else:
            self.active_rows += rows
        self.connection.submit(sequence)
        return True

    def cancel(self, number: int) -> None:
        """Let the worker drop the sequence of this number, if it has it. An output has it in any case."""
        if number in self.sequences:
            self.connection.cancel(number)

    def remove(self, number: int) -> AcceptedSequence:
        """Remove and return a sequence that no longer needs its rows."""
        sequence = self.sequences.pop(number)
        rows = sequence.sentence.options.rows
        self.rows -= rows
        waiting = self.waiting
        if cost := waiting.pop(number, 0):
            self._waiting_cost -= cost
        else:
            self.active_rows -= rows
        while waiting:
            first = next(iter(waiting))
            rows = self.sequences[first].sentence.options.rows
            if self.active_rows + rows > self.capacity:
                break
            self._waiting_cost -= waiting.pop(first)
            self.active_rows += rows
        return sequence

    @property
    def newest(self) -> list[int]:
        """Numbers of the sequences that the worker has hardly begun, in the order in which they were sent.

        Of an output nobody knows what the worker had received when it sent it, so those before one output are new, too.
        """
        return [number for number in (*self._new, *self._newer) if number in self.sequences]

    def clear(self) -> list[AcceptedSequence]:
        """Remove and return all sequences, in the order in which they were sent."""
        sequences = list(self.sequences.values())
        self.sequences, self.waiting, self._new, self._newer = {}, {}, [], []
        self.rows = self.active_rows = self._waiting_cost = 0
        return sequences

    # Lives

    async def start(self, dispatcher: Dispatcher) -> None:
        """Start the worker, and wait until it is ready to decode. The dispatcher learns what becomes of it.

        Raises:
            StartupError: the worker cannot start.
        """
        self._dispatcher = dispatcher
        self._enter(State.STARTING)
        self._watch(_PATIENCE * self.patience)
        await self.connection.start(self.received, self.broken)
        if self._broke_early:
            raise StartupError(f"{self.connection.name} ended as soon as it had started")
        if self.state is State.STARTING:  # it may be stopped by now
            self._come_up()

    async def rest(self) -> None:
        """End the process of a worker without sequences, or of one that could not start. It can be started again."""
        assert not self.sequences, "a worker with sequences does not rest"
        self._enter(State.RESTING)
        if self._watching:
            self._watching.cancel()
        await self._part_with_life().stop()

    async def stop(self) -> None:
        """End the worker at once. Its sequences are lost."""
        was_stopped = self.state is State.STOPPED
        self._enter(State.STOPPED)
        tasks = [task for task in (self._watching, self._replacing) if task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.connection.stop()
        if not was_stopped:
            await asyncio.to_thread(self.on_stopped)

    def received(self, connection: WorkerConnection, output: EngineOutput) -> None:
        """Take the output of a life; that of a former life does not count."""
        if connection is self.connection:
            self._missed = 0
            self.is_starved = output.is_starved
            if output.ended:
                self._has_results = True
                self._most = min(2 * self._most, 2 * self.capacity)
            self._new, self._newer = self._newer, []
            self._dispatcher.received(self, output)

    def broken(self, connection: WorkerConnection) -> None:
        """Replace the life that has ended."""
        if connection is not self.connection:
            return
        if self.state is not State.UP:  # whoever starts it notices
            self._broke_early = True
            return
        self._enter(State.LOST)
        if self._watching:
            self._watching.cancel()
        self.count_loss()
        if self._has_results or self.clock() - self._up_since > _LASTING:
            self._losses = 0  # so another process may overcome what others before did not
        if not self._has_results and self.sequences:
            self._most = min(_CAUTIOUS, self._most)
        if self._dispatcher.lost(self) and not self._has_results:
            self._losses += 1
        self._replacing = asyncio.create_task(self._replace())

    async def _replace(self) -> None:
        """Start a life in the place of the lost one, however often it takes."""
        refusals: set[str] = set()  # why no life starts; the log says each reason once
        while True:
            if self._losses > _MOST_LOSSES:
                if self.state is not State.FAILING:
                    told = "%s was lost %d times in a row; it is tried again"
                    _log.error(told, self.connection.name, self._losses, extra=self.connection.facts)
                self._enter(State.FAILING)
                self._dispatcher.changed()
            if self._losses > 1:
                await asyncio.sleep(min(_FIRST_DELAY * 2 ** min(self._losses - 2, _MOST_DOUBLINGS), _LONGEST_DELAY))
            before = self._part_with_life()
            try:
                await before.stop()  # it has ended, so that two of them never take the memory of two
                self._watch(self.patience)
                await self.connection.start(self.received, self.broken)
                if not self._broke_early:
                    break
            except StartupError as error:
                if str(error) not in refusals:
                    _log.error("%s does not start again: %s", self.connection.name, error, extra=self.connection.facts)
                refusals.add(str(error))
            except Exception:  # noqa: BLE001 such as no thread, or a bug; nobody else would start it
                _log.exception("%s does not start again", self.connection.name, extra=self.connection.facts)
            if self._watching:  # of a life that has not started
                self._watching.cancel()
            self.count_loss()
            self._losses += 1
        self._come_up()
        _log.warning("%s has been replaced", self.connection.name, extra=self.connection.facts)
        self._dispatcher.changed()

    def _part_with_life(self) -> WorkerConnection:
        """Have a connection for the next life, of which nothing is known. Return that of the present one."""
        before, self.connection = self.connection, self.new_connection()
        self._has_results = self._broke_early = self.is_starved = False
        return before

    def _come_up(self) -> None:
        self._missed = 0
        self._up_since = self.clock()
        self._enter(State.UP)

    def _watch(self, loading: float) -> None:
        if self.patience:
            self._watching = asyncio.create_task(self._watch_life(self.connection, loading))

    async def _watch_life(self, connection: WorkerConnection, loading: float) -> None:
        """Kill the life at `connection` if it hangs. While it loads the model, it may do nothing for `loading` seconds.

        Time is counted in ticks of this loop, so that a pause of the whole machine is no fault of the worker.
        """
        tick = min(_TICK, self.patience / 4)
        silent = idle = 0.0  # time without an answer, and time without an answer and without computing
        heard = used = -1
        while connection is self.connection:
            self._missed += 1
            if connection.heard != heard:
                self._missed = 0
                silent = idle = 0.0
                heard = connection.heard
                connection.ask()
            elif (now_used := connection.cpu_time()) != used:
                used, idle = now_used, 0.0
            # To load a model may take long, and there is nothing to answer before.
            patience = self.patience if heard else loading
            if idle > patience or (heard and silent > self.patience * _PATIENCE):
                told = "%s has not answered for %.0f seconds; it is ended"
                _log.error(told, connection.name, silent, extra=self.connection.facts)
                await connection.kill()
                return
            await asyncio.sleep(tick)
            silent += tick
            idle += tick
