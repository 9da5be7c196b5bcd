"""What the choice among more replicas costs the dispatcher: the server's dispatcher, over replicas that do nothing."""

from __future__ import annotations

import asyncio
import statistics
import time

from translane_server.dispatch.dispatcher import Dispatcher
from translane_server.measurements import Measurements
from translane_server.options import DecodingOptions
from translane_server.replica.interface import ReplicaListener, Report
from translane_server.sentence import Hypothesis, Sentence, SentenceResult, Task, Timing

_FEW, _MANY = 1, 64  # replicas
_SENTENCES, _ROUNDS = 400, 7
_SENTENCE = Sentence((5,) * 12, DecodingOptions(max_length=64, scores=False))
_RESULT = SentenceResult((Hypothesis((7,), None, is_complete=True),), Timing(0.0, 0.0, 0.0))


class _Replica:
    """Remembers its tasks. Implements `Replica`."""

    rows = 64
    is_responsive = True

    def __init__(self) -> None:
        self.tasks: list[Task] = []

    async def start(self, listener: ReplicaListener) -> None:
        """There is nothing to start."""

    def submit(self, task: Task) -> None:
        self.tasks.append(task)

    def cancel(self, number: int) -> None:
        """Nobody cancels."""

    async def stop(self) -> None:
        """There is nothing to stop."""


def dispatch_cost() -> float:
    """Measure what each replica beyond the first adds to the work on a sentence [seconds]."""
    rounds = [[sentence_cost(replicas) for replicas in (_FEW, _MANY)] for _ in range(_ROUNDS)]
    return max(0.0, statistics.median((many - few) / (_MANY - _FEW) for few, many in rounds))


def sentence_cost(replicas: int) -> float:
    """Measure the work of a dispatcher of some replicas on a sentence [seconds], with the tasks of its event loop."""
    return asyncio.run(_sentence_cost(replicas))


async def _sentence_cost(count: int) -> float:
    replicas = [_Replica() for _ in range(count)]
    dispatcher = Dispatcher(replicas, waiting_limit=1024)
    await dispatcher.start()
    begun = time.thread_time()
    for _ in range(_SENTENCES):
        request = asyncio.create_task(dispatcher.decode([_SENTENCE]))
        await asyncio.sleep(0)
        replica = next(each for each in replicas if each.tasks)
        ended = [(task.number, _RESULT) for task in replica.tasks]
        replica.tasks.clear()
        dispatcher.reported(replica, Report(ended, (), (), Measurements.none()))
        await request
    return (time.thread_time() - begun) / _SENTENCES
