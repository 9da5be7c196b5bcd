"""A model of a server with several front ends: requests a second and waits, for machines that are not at hand.

The model is a simulation of events. Callers keep calls open on connections. A connection belongs to a front end that
chance chooses, as SO_REUSEPORT does. A front end works on one call at a time: first on the request, then, when it is
decoded, on the answer. Its replicas decode sentences together. A step takes a fixed time, and some more for each
sentence, so a replica with `n` sentences works `alone + (n - 1) * more` until each of them is decoded. Callers on the
same machine work as front ends do.

Each part that is at work uses one core; a front end uses some more, in gRPC's threads. If all parts together want more
cores than there are, all are slowed down alike. The model knows no cost of memory that many cores share.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from translane_client.bench.measurement import quantile

# Calls that are simulated: so many, and so many for each one that is open. All begin at once, so the first share of
# them is ignored.
_CALLS, _CALLS_OF_EACH, _IGNORED = 8000, 10, 0.25


@dataclass(frozen=True)
class Costs:
    """Processor times of a request of one sentence [seconds].

    Attributes:
        front_end: of the front end's event loop.
        threads: of gRPC's threads, beside the event loop.
        alone: of a replica that decodes one sentence.
        more: of a replica, for each other sentence that it decodes at the same time.
        caller: of a process of callers; 0 if the callers have machines of their own.
    """

    front_end: float
    threads: float
    alone: float
    more: float
    caller: float = 0.0


@dataclass(frozen=True)
class Machine:
    """What is simulated.

    Attributes:
        cores: of the machine.
        front_ends: at most as many as replicas.
        replicas: of all front ends, of one thread each; 0 if answers come from the cache.
        connections: of all callers.
        calls: that are open at the same time, on all connections.
        callers: processes of callers on this machine.
        others: cores that other programs on this machine want all the time.
    """

    cores: float
    front_ends: int
    replicas: int
    connections: int
    calls: int
    callers: int = 0
    others: float = 0.0


@dataclass(frozen=True)
class Simulated:
    """Requests a second, and the wait that 95% of the calls stay within [seconds]."""

    rate: float
    p95: float


@dataclass
class _Call:
    front_end: int
    client: int
    began: float = 0.0
    stage: int = 0


class _Queue:
    """A part that works on one call at a time."""

    def __init__(self, simulation: _Simulation, cores: float) -> None:
        self._simulation = simulation
        self._cores = cores
        self._waiting: deque[tuple[_Call, float]] = deque()
        self._busy = False

    def add(self, call: _Call, work: float) -> None:
        self._waiting.append((call, work))
        if not self._busy:
            self._busy = True
            self._simulation.wanted += self._cores
            self._next()

    def _next(self) -> None:
        call, work = self._waiting.popleft()
        self._simulation.later(work, lambda: self._done(call))

    def _done(self, call: _Call) -> None:
        if self._waiting:
            self._next()
        else:
            self._busy = False
            self._simulation.wanted -= self._cores
        self._simulation.proceed(call)


class _Replica:
    """A part that works on all its calls together, with equal progress."""

    def __init__(self, simulation: _Simulation, costs: Costs) -> None:
        self._simulation = simulation
        self._costs = costs
        self._calls: deque[tuple[float, _Call]] = deque()  # all sentences are alike, so the first one ends first
        self._progress = 0.0  # of a call that was there from the begin
        self._at = 0.0
        self._version = 0

    @property
    def size(self) -> int:
        return len(self._calls)

    def add(self, call: _Call) -> None:
        self._advance()
        if not self._calls:
            self._simulation.wanted += 1
        self._calls.append((self._progress + 1, call))
        self._plan()

    def _advance(self) -> None:
        now = self._simulation.work
        if self._calls:
            self._progress += (now - self._at) / self._seconds()
        self._at = now

    def _seconds(self) -> float:
        return self._costs.alone + (len(self._calls) - 1) * self._costs.more

    def _plan(self) -> None:
        self._version = version = self._version + 1
        rest = (self._calls[0][0] - self._progress) * self._seconds()
        self._simulation.later(max(0.0, rest), lambda: self._done(version))

    def _done(self, version: int) -> None:
        if version != self._version:  # another call has joined since
            return
        self._advance()
        ended = [self._calls.popleft()[1]]
        while self._calls and self._calls[0][0] <= self._progress + 1e-9:
            ended.append(self._calls.popleft()[1])
        if self._calls:
            self._plan()
        else:
            self._simulation.wanted -= 1
        for call in ended:
            self._simulation.proceed(call)


class _Simulation:
    """Parts do their `work` in a time of its own, which goes slower than the clock while cores are short."""

    def __init__(self, machine: Machine, costs: Costs, seed: int) -> None:
        self._machine = machine
        self._costs = costs
        chance = random.Random(seed)
        self.work = 0.0
        self.clock = 0.0
        self.wanted = 0.0  # cores
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._ends: list[tuple[float, float]] = []
        cores = 1 + costs.threads / costs.front_end
        self._front_ends = [_Queue(self, cores) for _ in range(machine.front_ends)]
        self._clients = [_Queue(self, 1) for _ in range(machine.callers)]
        self._replicas = [
            [_Replica(self, costs) for number in range(machine.replicas) if number % machine.front_ends == place]
            for place in range(machine.front_ends)
        ]
        places = [chance.randrange(machine.front_ends) for _ in range(machine.connections)]
        for number in range(machine.calls):
            connection = number % machine.connections
            self._begin(_Call(places[connection], connection % max(1, machine.callers)))

    def run(self) -> Simulated:
        calls = max(_CALLS, _CALLS_OF_EACH * self._machine.calls)
        while len(self._ends) < calls:
            at, _, event = heapq.heappop(self._events)
            self.clock += (at - self.work) * max(1.0, (self.wanted + self._machine.others) / self._machine.cores)
            self.work = at
            event()
        first = int(calls * _IGNORED)
        waits = sorted(wait for _, wait in self._ends[first:])
        lasted = self._ends[-1][0] - self._ends[first][0]
        return Simulated((len(waits) - 1) / lasted, quantile(waits, 0.95))

    def later(self, work: float, event: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (self.work + work, self._count, event))

    def proceed(self, call: _Call) -> None:
        """Begin the next stage of a call: caller, request, replica, answer, caller."""
        call.stage += 1
        front_end = self._front_ends[call.front_end]
        if call.stage == 1:
            front_end.add(call, self._costs.front_end / 2)
        elif call.stage == 2 and self._machine.replicas:
            min(self._replicas[call.front_end], key=lambda each: each.size).add(call)
        elif call.stage <= 3:
            call.stage = 3
            front_end.add(call, self._costs.front_end / 2)
        else:
            self._ends.append((self.clock, self.clock - call.began))
            self._begin(call)

    def _begin(self, call: _Call) -> None:
        call.began, call.stage = self.clock, 0
        if self._clients:
            self._clients[call.client].add(call, self._costs.caller)
        else:
            self.proceed(call)


def simulate(machine: Machine, costs: Costs, runs: int = 1) -> Simulated:
    """Simulate a machine. With several runs, chance places the connections anew, and the means count."""
    found = [_Simulation(machine, costs, seed).run() for seed in range(runs)]
    return Simulated(sum(each.rate for each in found) / runs, sum(each.p95 for each in found) / runs)


def others_of(machine: Machine, costs: Costs, rate: float) -> float:
    """Return how many cores other programs want, if the machine's rate is `rate` requests a second.

    Returns:
        From 0, where the model is not faster than `rate` even without them, to 16.
    """
    low, high = 0.0, 16.0
    for _ in range(10):
        middle = (low + high) / 2
        if simulate(replace(machine, others=middle), costs).rate > rate:
            low = middle
        else:
            high = middle
    return low
