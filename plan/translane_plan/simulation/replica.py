"""A replica without a model: the rules of `translane_server.replica.loop.ReplicaLoop`, with costs in place of work.

| rule of the server | here |
|---|---|
| `ReplicaLoop._exchange`: orders are read between two runs of steps | `Replica._turn` |
| `ReplicaLoop._admit`: encoded sentences enter first, and then the next ones are encoded together | `Replica._admit` |
| `GraphBackend.encode_ahead`: as many sources as fit, in groups of similar lengths | `Replica._encode` |
| `ReplicaLoop._steps_ahead`: several steps if nobody can join | `Replica._steps_ahead` |
| `ReplicaLoop._stops`: a run of steps ends with a sentence, or when orders come | `Replica.submit` |

A sentence is greedy: it takes one row, and ends after as many steps as its translation has tokens.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Sequence
from functools import lru_cache

from translane_plan.profile import Curve, Profile
from translane_plan.simulation.processors import Niceness, Processors
from translane_plan.simulation.timeline import Timeline
from translane_server.replica.interface import ReplicaListener
from translane_server.runtime.encode_groups import group_sources
from translane_server.sentence import Task

STEPS_AT_ONCE = 64
"""Most steps of a run: `steps_at_once` of the server's backends."""


class Replica:
    """A replica. Implements what `translane_server.dispatch.replica_load.ReplicaLoad` needs of one.

    Args:
        timeline: the time.
        processors: the cores that the replica runs on.
        profile: what its work costs.
        rows: number of rows.
        encode_tokens: the server's setting.
        target_of: takes the number of a task, and returns how many steps its sentence has.
        ended: called with the numbers of tasks whose sentences have ended together.

    Attributes:
        rows: number of rows.
        busy: seconds of work so far.
        steps: decoder steps so far.
        row_steps: rows of all these steps.
    """

    is_responsive = True

    def __init__(
        self,
        timeline: Timeline,
        processors: Processors,
        profile: Profile,
        *,
        rows: int,
        encode_tokens: int,
        target_of: Callable[[int], int],
        ended: Callable[[Sequence[int]], None],
    ) -> None:
        costs = profile.replica
        self.rows = rows
        self.busy = 0.0
        self.steps = self.row_steps = 0
        self._timeline = timeline
        self._costs = costs
        self._delay = profile.delay
        self._processors = processors
        self._process = processors.process(Niceness.REPLICA, float(profile.threads) if profile.device == "cpu" else 1.0)
        self._step_seconds = _step_seconds(costs.steps, rows)
        self._run_cost = profile.run_cost
        self._encode_tokens = max(min(encode_tokens, rows * profile.source_capacity), profile.source_capacity)
        self._target_of = target_of
        self._report = ended
        self._arrived: list[Task] = []  # ordered, and not read yet
        self._queue: deque[Task] = deque()
        self._encoded: deque[Task] = deque()
        # The sentences that decode: (the step that ends it, number, source tokens, the step before its first one).
        self._decoding: list[tuple[int, int, int, int]] = []
        self._keys = 0  # source tokens of the sentences that decode, less the steps before each of them
        self._awake = False
        self._runs = False
        self._run_steps = 0  # steps of this run
        self._run_before = 0.0  # seconds of this run before its first step
        self._run_step = 0.0  # seconds of each step of this run

    # What `ReplicaLoad` needs.

    def submit(self, task: Task) -> None:
        """Take a task. A run of several steps ends after the present step, so that the task is read."""
        self._arrived.append(task)
        if not self._awake:
            self._awake = True
            delay = self._delay if self._processors.has_free_core else 0.0
            self._timeline.at(self._timeline.now + delay, self._wake)
        elif self._runs and self._run_steps > 1:
            decoded = (self._process.progress() - self._run_before) / self._run_step
            steps = max(1, math.ceil(decoded))
            if steps < self._run_steps:
                self._run_steps = steps
                self._process.shorten(self._run_before + steps * self._run_step)

    def cancel(self, number: int) -> None:
        raise NotImplementedError("no caller of the simulation goes away")

    async def start(self, listener: ReplicaListener) -> None:
        raise NotImplementedError("a simulated replica runs from the beginning")

    async def stop(self) -> None:
        raise NotImplementedError("a simulated replica runs to the end")

    # The loop.

    def _wake(self) -> None:
        """Wait for a core, and read orders then."""
        wake = self._costs.wake if self._process.is_cold else 0.0
        self._process.begin(0.0, lambda: self._turn(wake))

    def _turn(self, more: float = 0.0) -> None:
        """Read orders, admit sentences, and begin a run of steps; with `more` seconds of work."""
        costs = self._costs
        arrived, self._arrived = self._arrived, []
        self._queue.extend(arrived)
        before = costs.turn + more + len(arrived) * costs.sentence
        if len(self._decoding) < self.rows and (self._encoded or self._queue):
            before += self._admit()
        n = len(self._decoding)
        steps = self._steps_ahead()
        # Each step reads a key more in every row, its own token's first, so the keys of the middle count for all steps.
        keys = self._keys + n * (self.steps + (steps + 1) / 2)
        self._run_step = self._step_seconds[n] + costs.key * keys
        self._run_steps, self._run_before = steps, before
        self._runs = True
        self._process.begin(before + steps * self._run_step, self._run_ended)

    def _run_ended(self) -> None:
        steps, n = self._run_steps, len(self._decoding)
        self._runs = False
        self.busy += self._run_before + steps * self._run_step
        self.steps += steps
        self.row_steps += steps * n
        ended: list[int] = []
        decoding = self._decoding
        while decoding and decoding[0][0] <= self.steps:
            _, number, source, entered = heapq.heappop(decoding)
            self._keys -= source - entered
            ended.append(number)
        if ended:
            self._report(ended)  # the dispatcher may order more at once
        if decoding or self._encoded or self._queue or self._arrived:
            self._turn()
        else:
            self._awake = False

    def _admit(self) -> float:
        """Give free rows to waiting sentences, encoded ones first. Return the seconds of the encoder."""
        seconds = 0.0
        self._enter()
        if not self._encoded and self._queue and len(self._decoding) < self.rows:
            seconds = self._encode()
            self._enter()
        return seconds

    def _encode(self) -> float:
        lengths = [len(task.sentence.source_ids) for task in self._queue]
        groups = group_sources(lengths, self._encode_tokens, self._run_cost)
        for _ in range(sum(len(group.numbers) for group in groups)):
            self._encoded.append(self._queue.popleft())
        return sum(self._costs.encodes.at(len(group.numbers) * group.longest) for group in groups)

    def _enter(self) -> None:
        while self._encoded and len(self._decoding) < self.rows:
            task = self._encoded.popleft()
            source, steps = len(task.sentence.source_ids), self._target_of(task.number)
            heapq.heappush(self._decoding, (self.steps + steps, task.number, source, self.steps))
            self._keys += source - self.steps

    def _steps_ahead(self) -> int:
        """The steps of a run: one if a sentence can join before the next sentence ends, else until that end."""
        if len(self._decoding) < self.rows and (self._encoded or self._queue):
            return 1
        return max(1, min(STEPS_AT_ONCE, self._decoding[0][0] - self.steps))


@lru_cache(16)
def _step_seconds(steps: Curve, rows: int) -> tuple[float, ...]:
    """The seconds of a step of 0 … `rows` rows. All replicas of a simulation share them."""
    return (0.0, *(steps.at(count) for count in range(1, rows + 1)))
