"""A simulation of events: requests on their way through the front ends and the replicas of one machine.

::

    caller ─▶ front end ─▶ dispatcher ─▶ replica ─▶ dispatcher ─▶ front end ─▶ caller
              half of its   queue, least  encoder,                 the other
              work          busy replica  rows, steps              half

Half of a front end's work on a request comes before the dispatcher, and half after the last of its sentences has ended.
Machines share nothing. So many machines are many simulations of one machine with its part of the load.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial

from translane_plan.profile import Length, Profile
from translane_plan.simulation.dispatcher import Dispatcher
from translane_plan.simulation.event_loop import EventLoop
from translane_plan.simulation.load import Load
from translane_plan.simulation.outcome import Outcome
from translane_plan.simulation.processors import EQUAL_WEIGHTS, WEIGHTS, Processors
from translane_plan.simulation.replica import Replica
from translane_plan.simulation.shape import Shape
from translane_plan.simulation.timeline import Timeline
from translane_server.dispatch.submission import Submission


class Call(Submission):
    """A request on its way: one of the server's, with its lengths and its times.

    Attributes:
        lengths: of its sentences.
        front_end: number of its front end.
        connection: number of its connection.
        number: its place among the requests.
        due: when it came, or when the simulated caller began to send it [seconds].
    """

    def __init__(self, lengths: Sequence[Length], front_end: int, connection: int, number: int, due: float) -> None:
        super().__init__(len(lengths), streamed=False)
        self.lengths = lengths
        self.front_end = front_end
        self.connection = connection
        self.number = number
        self.due = due


class _FrontEnd:
    """A front end with its dispatcher and its replicas."""

    def __init__(self, simulation: Simulation, number: int) -> None:
        profile, shape = simulation.profile, simulation.shape
        self.loop = EventLoop(simulation.timeline, simulation.processors, profile.front_end, profile.delay)
        targets: dict[int, int] = {}
        self.replicas = [
            Replica(
                simulation.timeline,
                simulation.processors,
                profile,
                rows=rows,
                encode_tokens=shape.encode_tokens,
                target_of=targets.pop,
                ended=partial(self._ended, place),
            )
            for place, rows in enumerate(shape.rows[number])
        ]
        self._simulation = simulation
        self._dispatcher = Dispatcher(
            self.replicas, waiting_limit=shape.waiting_limit, targets=targets, answered=self._decoded
        )
        costs = profile.front_end
        self._request = costs.request / 2
        self._sentence = costs.sentence / 2
        self._dispatch = costs.dispatch * max(0, len(self.replicas) - 1)

    def take(self, call: Call) -> None:
        """A request has arrived."""
        work = self._request + len(call.lengths) * (self._sentence + self._dispatch)
        self.loop.handle(work, lambda: self._accept(call))

    def _accept(self, call: Call) -> None:
        if not self.replicas:  # answers come from the cache
            self._decoded(call)
        elif not self._dispatcher.accept(call, call.lengths):
            self._simulation.refuse(call)

    def _ended(self, replica: int, numbers: Sequence[int]) -> None:
        self._dispatcher.ended(replica, numbers)

    def _decoded(self, request: Submission) -> None:
        assert isinstance(request, Call)
        call = request
        work = self._request + len(call.lengths) * self._sentence
        self.loop.handle(work, lambda: self._simulation.answered(call))


class Simulation:
    """A machine under load.

    Args:
        profile: what sentences cost.
        shape: what runs on the machine.
        load: what comes.
        seed: chooses the front ends of connections; the same seed chooses the same ones.
    """

    def __init__(self, profile: Profile, shape: Shape, load: Load, seed: int = 0) -> None:
        self.profile = profile
        self.shape = shape
        self.timeline = Timeline()
        weights = WEIGHTS if shape.nice else EQUAL_WEIGHTS
        self.processors = Processors(self.timeline, shape.cores, profile.turns, shape.others, weights)
        self._load = load
        self._pick = random.Random(seed)  # noqa: S311 nothing secret
        self._front_ends = [_FrontEnd(self, number) for number in range(shape.front_ends)]
        self._places = [self._pick.randrange(shape.front_ends) for _ in range(load.connections)]
        self._callers = self._caller_loops()
        self._begun = self._ended = self._refused = 0
        self._first = int(load.warm_up * load.requests)  # requests before this one do not count
        self._latencies: list[float] = []
        self._started = self._last = 0.0
        self._open_seconds = self._open_before = self._passed = 0.0  # of all requests together; then; until when
        self._before = (0.0, 0.0, 0.0, 0, 0)

    def _caller_loops(self) -> list[EventLoop]:
        shape, profile = self.shape, self.profile
        cores = Processors(self.timeline, shape.caller_cores, profile.turns) if shape.caller_cores else self.processors
        number = shape.caller_processes or (1 if shape.caller_cores else 0)
        return [EventLoop(self.timeline, cores, profile.caller, profile.delay) for _ in range(number)]

    def run(self) -> Outcome:
        """Simulate the load from its beginning until its last answer."""
        load = self._load
        if load.calls:
            for _ in range(load.calls):
                self._begin(0.0)
        else:
            self._arrive()
        self.timeline.run(lambda: self._ended < load.requests)
        return self._outcome()

    # The way of a request.

    def _arrive(self) -> None:
        """The next request comes at its time, and then the one after it."""
        if self._begun == self._load.requests:
            return
        time = self._load.times[self._begun]

        def come() -> None:
            self._begin(time)
            self._arrive()

        self.timeline.at(time, come)

    def _begin(self, due: float, before: Call | None = None) -> None:
        """A request comes; over the connection of the call `before`, if its caller has waited for the answer."""
        self._pass_time()
        number = self._begun
        self._begun += 1
        if number == self._first and not self._load.calls:
            self._mark()
        if before:
            connection, front_end = before.connection, before.front_end
        elif self._places:
            connection = number % len(self._places)
            front_end = self._places[connection]
        else:
            connection, front_end = number, self._pick.randrange(len(self._front_ends))
        call = Call(self._load.request(), front_end, connection, number, due)
        if self._callers:
            half = self.profile.caller.request / 2
            self._caller_of(call).handle(half, lambda: self._send(call), lambda: self._sends(call))
        else:
            self._send(call)

    def _caller_of(self, call: Call) -> EventLoop:
        return self._callers[call.connection % len(self._callers)]

    def _sends(self, call: Call) -> None:
        """A caller begins to send a request. Latency counts from here, as it does in a program of callers."""
        call.due = self.timeline.now

    def _send(self, call: Call) -> None:
        self._front_ends[call.front_end].take(call)

    def answered(self, call: Call) -> None:
        """A front end has answered."""
        if self._callers:
            self._caller_of(call).handle(self.profile.caller.request / 2, lambda: self._end(call))
        else:
            self._end(call)

    def refuse(self, call: Call) -> None:
        """A front end has refused a request."""
        self._refused += 1
        self._count(call)

    def _end(self, call: Call) -> None:
        # Callers who wait have calls open from first to last, so the order of the answers decides what counts.
        if (self._ended if self._load.calls else call.number) >= self._first:
            self._latencies.append(self.timeline.now - call.due)
        self._count(call)

    def _count(self, call: Call) -> None:
        self._pass_time()
        self._ended += 1
        self._last = self.timeline.now
        if self._load.calls:
            if self._ended == self._first:
                self._mark()
            self._begin(self._last, call)

    # What is counted.

    def _totals(self) -> tuple[float, float, float, int, int]:
        replicas = [replica for front_end in self._front_ends for replica in front_end.replicas]
        return (
            sum(front_end.loop.busy for front_end in self._front_ends),
            sum(replica.busy for replica in replicas),
            self.processors.used,
            sum(replica.steps for replica in replicas),
            sum(replica.row_steps for replica in replicas),
        )

    def _mark(self) -> None:
        """From now on requests count."""
        self._pass_time()
        self._open_before = self._open_seconds
        self._started = self.timeline.now
        self._before = self._totals()

    def _pass_time(self) -> None:
        """Count the time in which requests were open until now. Called before their number changes."""
        now = self.timeline.now
        self._open_seconds += (self._begun - self._ended) * (now - self._passed)
        self._passed = now

    def _outcome(self) -> Outcome:
        seconds = self._last - self._started
        front, replica, cores, steps, rows = (
            now - then for now, then in zip(self._totals(), self._before, strict=True)
        )
        shape = self.shape

        def share(work: float, workers: float) -> float:
            return work / (workers * seconds) if seconds > 0 and workers else 0.0

        return Outcome(
            latencies=self._latencies,
            refused=self._refused,
            seconds=seconds,
            sentences=self._load.sentences,
            front_ends=share(front, shape.front_ends),
            replicas=share(replica, shape.replicas),
            cores=share(cores, shape.cores),
            rows=rows / steps if steps else 0.0,
            open_requests=share(self._open_seconds - self._open_before, 1),
        )


def simulate(profile: Profile, shape: Shape, load: Load, seed: int = 0) -> Outcome:
    """Simulate a machine under load; see `Simulation`."""
    return Simulation(profile, shape, load, seed).run()
