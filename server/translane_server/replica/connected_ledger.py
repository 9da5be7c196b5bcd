"""The ledger of a replica's process: its callers are at the other end of a socket."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterable
from typing import Any

from translane_server.replica.messages import (
    RECEIVED_AT_ONCE,
    Frames,
    Task,
    framed,
    pack_end,
    pack_report,
    unpack_task,
)
from translane_server.replica.seam import Measurement, Progress
from translane_server.request import AlignedToken, Hypothesis, Timing
from translane_server.scheduler import Scheduler

_MOST_MEASUREMENTS = 64  # that wait until there is something else to report
_NO_TIME = Timing(0.0, 0.0, 0.0)


class Recorder:
    """Keeps what an `EngineObserver` is told, for another one."""

    def __init__(self) -> None:
        self.calls: list[Measurement] = []

    def encoded(self, seconds: float, sentences: int, source_tokens: int) -> None:
        """See `EngineObserver`."""
        self.calls.append(("encoded", seconds, sentences, source_tokens))

    def admitted(self, queue_seconds: float) -> None:
        """See `EngineObserver`."""
        self.calls.append(("admitted", queue_seconds))

    def stepped(self, seconds: float, rows: int) -> None:
        """See `EngineObserver`."""
        self.calls.append(("stepped", seconds, rows))

    def moved(self, seconds: float, rows: int) -> None:
        """See `EngineObserver`."""
        self.calls.append(("moved", seconds, rows))

    def first_token(self, seconds: float) -> None:
        """See `EngineObserver`."""
        self.calls.append(("first_token", seconds))


class ConnectedLedger:
    """Reads tasks and reports results between two steps, all on its worker's thread; see `WorkerLedger`.

    Args:
        connection: to the server.
        frames: what was received of it so far.
        encode_tokens: how many padded source tokens the worker takes at most at a time.

    Attributes:
        recorder: takes the measurements that are reported.
        cancellations: see `WorkerLedger`.
        failed: what ended the worker, if something did.
    """

    def __init__(self, connection: socket.socket, frames: Frames, encode_tokens: int) -> None:
        self.recorder = Recorder()
        self.cancellations = 0
        self.failed: BaseException | None = None
        self._connection = connection
        self._arrivals = select.poll()  # costs less than a read that finds nothing
        self._arrivals.register(connection, select.POLLIN)
        self._frames = frames
        self._scheduler = Scheduler[Task](encode_tokens)
        self._tasks: dict[int, Task] = {}  # that have not ended, by number
        self._ended: list[tuple[Any, ...]] = []  # and are to be reported, packed
        self._progress: dict[int, Progress] = {}
        self._stopping = False

    def wait(self, *, busy: bool) -> bool:
        """See `WorkerLedger`."""
        idle = not busy and not self._scheduler
        calls = self.recorder.calls
        if self._ended or self._progress or len(calls) > _MOST_MEASUREMENTS or (idle and calls):
            self._report()
        if not self._stopping and (idle or self._arrivals.poll(0)):
            self._receive()
        return not self._stopping

    def admit(self, rows: int, reserved: int) -> list[Task]:
        """See `WorkerLedger`."""
        return self._scheduler.schedule(rows - reserved)

    def drop_cancelled(self, jobs: Iterable[Task]) -> list[Task]:
        """See `WorkerLedger`."""
        dropped = [task for task in jobs if task.cancelled]
        for task in dropped:
            self._end(task, None, _NO_TIME)
        return dropped

    def finish(self, done: Iterable[tuple[Task, tuple[Hypothesis, ...]]], now: float) -> None:
        """See `WorkerLedger`."""
        for task, hypotheses in done:
            self._end(task, hypotheses, task.timing(now))

    def leave(self, failure: BaseException | None) -> None:
        """See `WorkerLedger`. The server learns of it when the connection closes."""
        self.failed = failure

    def _end(self, task: Task, hypotheses: tuple[Hypothesis, ...] | None, timing: Timing) -> None:
        del self._tasks[task.number]
        if self._progress:
            self._progress.pop(task.number, None)
        self._ended.append(pack_end(task.number, hypotheses, timing))

    def _report(self) -> None:
        recorder = self.recorder
        report = pack_report(self._ended, self._progress.values(), recorder.calls)
        try:
            self._connection.sendall(framed(report))
        except (BrokenPipeError, ConnectionResetError):
            self._stopping = True  # the server has gone, and what it sent before is nobody's
        self._ended, self._progress, recorder.calls = [], {}, []

    def _receive(self) -> None:
        try:
            data = self._connection.recv(RECEIVED_AT_ONCE)
        except ConnectionResetError:
            data = b""
        if not data:
            self._stopping = True
        for message in self._frames.feed(data):
            self._take(message)

    def _take(self, message: Iterable[tuple[Any, ...] | int]) -> None:
        for each in message:
            if isinstance(each, int):
                self._cancel(each)
            else:
                task = unpack_task(each, self._keep_progress)
                self._tasks[task.number] = task
                self._scheduler.add((task,))

    def _cancel(self, number: int) -> None:
        task = self._tasks.get(number)
        if task is None:  # it has ended
            return
        if self._scheduler.remove(lambda waiting: waiting is task):
            self._end(task, None, _NO_TIME)
        else:
            task.cancelled = True
            self.cancellations += 1

    def _keep_progress(self, number: int, token_ids: tuple[int, ...], alignment: tuple[AlignedToken, ...]) -> None:
        self._progress[number] = Progress(number, token_ids, alignment)
