"""The ledger of a replica's process: its callers are at the other end of a socket."""

from __future__ import annotations

import socket
from dataclasses import replace
from functools import partial
from typing import Any

from translane_server.errors import RequestError
from translane_server.job import PendingRequest
from translane_server.ledger import Ledger
from translane_server.replicas.messages import RECEIVED_AT_ONCE, Cancel, Frames, framed, pack_report, unpack_task
from translane_server.replicas.replica import Progress, Report
from translane_server.request import AlignedToken, Request, SentenceResult

_MOST_MEASUREMENTS = 64  # that wait until there is something else to report


class Recorder:
    """Keeps what an `EngineObserver` is told, for another one."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[float, ...]]] = []

    def encoded(self, seconds: float, sentences: int, source_tokens: int) -> None:
        """See `EngineObserver`."""
        self.calls.append(("encoded", (seconds, sentences, source_tokens)))

    def admitted(self, queue_seconds: float) -> None:
        """See `EngineObserver`."""
        self.calls.append(("admitted", (queue_seconds,)))

    def stepped(self, seconds: float, rows: int) -> None:
        """See `EngineObserver`."""
        self.calls.append(("stepped", (seconds, rows)))

    def moved(self, seconds: float, rows: int) -> None:
        """See `EngineObserver`."""
        self.calls.append(("moved", (seconds, rows)))

    def first_token(self, seconds: float) -> None:
        """See `EngineObserver`."""
        self.calls.append(("first_token", (seconds,)))


class ConnectedLedger(Ledger):
    """Reads tasks and reports results between two steps, all on its worker's thread.

    Args:
        connection: to the server.
        frames: what was received of it so far.
        encode_tokens: see `Ledger`.

    Attributes:
        recorder: takes the measurements that are reported.
    """

    def __init__(self, connection: socket.socket, frames: Frames, encode_tokens: int) -> None:
        super().__init__(encode_tokens)
        self.recorder = Recorder()
        self._connection = connection
        self._frames = frames
        self._requests: dict[int, Request] = {}  # by the number of the task
        self._finished: list[tuple[int, SentenceResult | None]] = []
        self._progress: dict[int, Progress] = {}

    def wait(self, *, busy: bool) -> bool:
        """See `Ledger.wait`."""
        idle = not (busy or self.waiting or self._ended)
        self._report(idle=idle)
        if not self.stopping:  # else the server has gone, and what it sent before is nobody's
            self._receive(block=idle)
        return not self.stopping

    def _report(self, *, idle: bool) -> None:
        recorder = self.recorder
        worth_it = self._finished or self._progress or len(recorder.calls) > _MOST_MEASUREMENTS
        if not (worth_it or (idle and recorder.calls)):
            return
        report = Report(tuple(self._finished), tuple(self._progress.values()), tuple(recorder.calls))
        self._finished, self._progress, recorder.calls = [], {}, []
        try:
            self._connection.sendall(framed(pack_report(report)))
        except (BrokenPipeError, ConnectionResetError):
            self.stopping = True

    def _receive(self, *, block: bool) -> None:
        try:
            data = self._connection.recv(RECEIVED_AT_ONCE, 0 if block else socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except ConnectionResetError:
            data = b""
        if not data:
            self.stopping = True
            return
        for message in self._frames.feed(data):
            if isinstance(message, Cancel):
                if request := self._requests.get(message.number):
                    self.cancel(request)
            else:
                self._take(message)

    def _take(self, packed: tuple[Any, ...]) -> None:
        task, told = unpack_task(packed)
        sentence = task.sentence
        if told:
            sentence = replace(sentence, on_progress=partial(self._keep_progress, task.number))
        request = Request([sentence], partial(self._keep_result, task.number), task.priority)
        self._requests[task.number] = request
        self.accept(PendingRequest(request, task.submitted_at))

    def _keep_progress(self, number: int, token_ids: tuple[int, ...], alignment: tuple[AlignedToken, ...]) -> None:
        self._progress[number] = Progress(number, token_ids, alignment)

    def _keep_result(self, number: int, outcome: tuple[SentenceResult, ...] | RequestError) -> None:
        del self._requests[number]
        self._progress.pop(number, None)
        self._finished.append((number, None if isinstance(outcome, RequestError) else outcome[0]))
