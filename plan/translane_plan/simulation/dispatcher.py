"""The rules of `translane_server.dispatch.dispatcher.Dispatcher` for sentences of which none is lost.

The queue, the load of a replica and the request are the server's own classes. This module has the rest: who is refused
(`Dispatcher.check_room`), which replica gets a sentence (`Dispatcher._send`), and when sentences leave the queue
(`Dispatcher._accept`, `reported` and `_dispatch`). A test compares both on the same events. The first replica of a
server decodes a few sentences on all threads while the others are idle (`lone_rows`); no replica does so here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from operator import attrgetter

from translane_plan.profile import Length
from translane_plan.simulation.replica import Replica
from translane_server.dispatch.fair_queue import FairQueue
from translane_server.dispatch.replica_load import ReplicaLoad
from translane_server.dispatch.submission import Accepted, Submission
from translane_server.options import DecodingOptions
from translane_server.sentence import Sentence, SentenceResult, Task, Timing

_OPTIONS = DecodingOptions(max_length=256, scores=False)  # of a server's requests, by default
_DONE = SentenceResult((), Timing(0.0, 0.0, 0.0))
_rows = attrgetter("rows")


class Dispatcher:
    """Sends each sentence to the replica with the fewest rows.

    Args:
        replicas: the replicas.
        waiting_limit: most sentences that wait for rows.
        targets: number of a task → steps of its sentence. The dispatcher adds tasks, and replicas remove them.
        answered: called with a request whose last sentence has ended.
    """

    def __init__(
        self,
        replicas: Sequence[Replica],
        *,
        waiting_limit: int,
        targets: dict[int, int],
        answered: Callable[[Submission], None],
    ) -> None:
        self._loads = [ReplicaLoad(replica) for replica in replicas]
        self._waiting_limit = waiting_limit
        self._targets = targets
        self._answered = answered
        self._queue: FairQueue[Accepted] = FairQueue()
        self._numbers = itertools.count()

    @property
    def waiting(self) -> int:
        """Number of accepted sentences that wait for rows, here and in the replicas."""
        return len(self._queue) + sum([load.waiting for load in self._loads])

    def accept(self, request: Submission, lengths: Sequence[Length], caller: str = "") -> bool:
        """Take the sentences of a request. Return False, and take none, if too many would wait."""
        if self.waiting + len(lengths) > self._waiting_limit:
            return False
        nobody_waits = not len(self._queue)
        for place, length in enumerate(lengths):
            task = Task(next(self._numbers), 0, 0.0, False, Sentence(range(length.source), _OPTIONS))
            self._targets[task.number] = length.target
            accepted = Accepted(request, place, task, caller)
            if nobody_waits and self._send(accepted):
                continue
            nobody_waits = False
            accepted.entry = self._queue.add(accepted, caller, cost=task.cost)
        if not nobody_waits:
            self._dispatch()
        return True

    def ended(self, replica: int, numbers: Sequence[int]) -> None:
        """The sentences of these tasks have ended in a replica."""
        load = self._loads[replica]
        for number in numbers:
            accepted = load.remove(number)
            request = accepted.request
            request.finish(accepted.place, _DONE)
            if not request.missing:
                self._answered(request)
        self._dispatch()

    def _send(self, accepted: Accepted) -> bool:
        load = min(self._loads, key=_rows)
        if not load.has_room_for(accepted.task):
            return False
        load.send(accepted)
        return True

    def _dispatch(self) -> None:
        while (accepted := self._queue.first) and self._send(accepted):
            self._queue.pop()
            accepted.entry = None
