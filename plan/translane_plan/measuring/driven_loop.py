"""Drives the server's replica loop in this process, round after round, and takes the times of each round.

The loop reads its orders from a real socket, and writes its reports to it. So reading and writing them is measured,
and what the server's process does at the other end of the socket is not.
"""

from __future__ import annotations

import contextlib
import socket
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from translane_plan.errors import PlanError
from translane_server.backend import Backend
from translane_server.measurements import EncodeRun, RowRun
from translane_server.replica.activity import SharedActivity
from translane_server.replica.interface import Report
from translane_server.replica.loop import ReplicaLoop
from translane_server.replica.messages import Orders, framed, pack_orders
from translane_server.replica.server_connection import ServerConnection, ServerGoneError
from translane_server.sentence import Sentence, Task
from translane_server.vocabulary import TargetVocabulary


@dataclass
class Round:
    """The times of sentences that were ordered together, until the last one ended.

    Attributes:
        sentences: number of sentences.
        seconds: work of the replica.
        encodes: encoder runs, as the replica reports them.
        steps: decoder steps, as the replica reports them.
        moves: copies of rows, as the replica reports them.
        targets: decoder steps of each sentence, by its place.
    """

    sentences: int
    seconds: float = 0.0
    encodes: list[EncodeRun] = field(default_factory=list)
    steps: list[RowRun] = field(default_factory=list)
    moves: list[RowRun] = field(default_factory=list)
    targets: dict[int, int] = field(default_factory=dict)

    @property
    def step(self) -> float:
        """Mean seconds of a step."""
        return statistics.fmean(seconds for seconds, _ in self.steps)

    @property
    def encode(self) -> float:
        """Seconds of all encoder runs."""
        return sum(seconds for seconds, _ in self.encodes)

    @property
    def rest(self) -> float:
        """Seconds of the loop beside the model: orders, scheduling, rows, reports."""
        inside = self.encode + sum(seconds for seconds, _ in (*self.steps, *self.moves))
        return max(0.0, self.seconds - inside)


def run_rounds(
    backend: Backend,
    vocabulary: TargetVocabulary,
    rounds: Iterator[Sequence[Sentence]],
    clock: Callable[[], float],
) -> Iterator[Round]:
    """Decode the sentences of each round together, and yield the round's times. Closes the backend.

    Args:
        backend: runs the model.
        vocabulary: the target vocabulary.
        rounds: the sentences of each round; not more than the backend has rows.
        clock: counts the seconds of work of this thread.

    Raises:
        PlanError: a step fails.
    """
    near, far = socket.socketpair()
    with near, far:
        server = _Driver(near, far, rounds, clock)
        if not ReplicaLoop(backend, server, vocabulary, SharedActivity().of(0), clock).run() or server.failed:
            raise PlanError("a step of the model has failed; the lines above say why")
        yield from server.done


class _Driver(ServerConnection):
    """The replica's end of the socket. It also does what the server does at the other end, without counting it."""

    def __init__(
        self,
        near: socket.socket,
        far: socket.socket,
        rounds: Iterator[Sequence[Sentence]],
        clock: Callable[[], float],
    ) -> None:
        super().__init__(near)
        far.setblocking(False)
        self._far = far
        self._rounds = rounds
        self._clock = clock
        self._round: Round | None = None
        self._begun = self._outside = 0.0
        self.done: list[Round] = []
        self.failed = False

    def orders(self, *, wait: bool) -> list[Orders]:
        if wait:
            self._finish(self._clock())
            self._order()
        return super().orders(wait=wait)

    def report(self, report: Report) -> None:
        super().report(report)
        begun = self._clock()
        with contextlib.suppress(BlockingIOError):
            while self._far.recv(1 << 20):
                pass
        found, measured = self._round, report.measurements
        self.failed |= bool(report.failed)
        assert found, "reports come in rounds"
        found.encodes += measured.encodes
        found.steps += measured.steps
        found.moves += measured.moves
        for number, result in report.ended:
            best = result.hypotheses[0]
            found.targets[number] = len(best.token_ids) + best.is_complete
        self._outside += self._clock() - begun

    def _finish(self, now: float) -> None:
        if self._round:
            self._round.seconds = now - self._begun - self._outside
            self.done.append(self._round)
            self._round = None

    def _order(self) -> None:
        sentences = next(self._rounds, None)
        if sentences is None or self.failed:
            raise ServerGoneError
        tasks = [Task(number, 0, 0.0, False, sentence) for number, sentence in enumerate(sentences)]
        self._round, self._outside = Round(len(tasks)), 0.0
        self._far.sendall(framed(pack_orders(Orders(tasks, ()))))
        self._begun = self._clock()
