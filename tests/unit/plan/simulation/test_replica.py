"""The simulated replica ends every sentence when the server's own loop does, over a model that takes the same time."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.plan_profiles import MILLI, profile
from translane_plan.profile import Turns
from translane_plan.simulation.processors import Processors
from translane_plan.simulation.replica import STEPS_AT_ONCE, Replica
from translane_plan.simulation.timeline import Timeline
from translane_server.backend import Candidates
from translane_server.options import DecodingOptions
from translane_server.replica.activity import SharedActivity
from translane_server.replica.loop import ReplicaLoop
from translane_server.replica.messages import Orders
from translane_server.replica.server_connection import ServerGoneError
from translane_server.runtime.encode_groups import group_sources
from translane_server.runtime.ort import OrtBackend
from translane_server.sentence import Sentence, Task
from translane_server.vocabulary import TargetVocabulary

EOS, OTHER = 3, 5
COSTS = profile(step=MILLI, row=MILLI / 8, encode=MILLI / 4, turn=MILLI / 16, sentence=MILLI / 32, wake=MILLI / 2)
CAPACITY = 256  # source tokens


class Watch:
    now = -1.0  # before the first sentence comes

    def __call__(self):
        return self.now


class TimedBackend:
    """A backend without a model. The first token of a source says after how many steps its translation ends."""

    has_attention = False
    steps_at_once = STEPS_AT_ONCE
    stops_between_steps = True
    source_capacity = CAPACITY
    target_capacity = 1000

    def __init__(self, rows, encode_tokens, watch):
        self.rows = rows
        self.encode_tokens = max(min(encode_tokens, rows * CAPACITY), CAPACITY)
        self.watch = watch
        self.targets = [0] * rows
        self.staged = []

    def encode_ahead(self, sources):
        groups = group_sources([len(source) for source in sources], self.encode_tokens, COSTS.run_cost)
        self.watch.now += sum(COSTS.replica.encodes.at(len(group.numbers) * group.longest) for group in groups)
        self.staged = [source[0] for source in sources[: sum(len(group.numbers) for group in groups)]]
        return len(self.staged)

    def enter(self, sources, rows, _allowed=()):
        for source, row in zip(sources, rows, strict=True):
            self.targets[row] = self.staged[source]

    def _step(self, positions, step=0):
        self.watch.now += COSTS.replica.steps.at(len(positions))
        lengths = (positions + step + 1).tolist()
        return [EOS if length == self.targets[row] else OTHER for row, length in enumerate(lengths)]

    def decode_step(self, _token_ids, positions, _needs=None):
        return Candidates(np.array(self._step(positions))[:, None])

    def decode_ahead(self, _token_ids, positions, steps, stops):
        tokens = []
        for step in range(steps):
            tokens.append(self._step(positions, step))
            if stops(tokens[-1]):
                break
        return np.array(tokens)

    def move_rows(self, moves):
        for move in moves:
            self.targets[move.target] = self.targets[move.source]

    def close(self):
        pass


class TimedServer:
    """Orders tasks at given times, and notes when they have ended."""

    def __init__(self, tasks, watch):
        self.tasks = sorted(tasks, key=lambda each: each[0])  # (time, task)
        self.watch = watch
        self.ends = {}

    def has_arrivals(self):
        return bool(self.tasks) and self.tasks[0][0] <= self.watch.now

    def orders(self, *, wait):
        costs = COSTS.replica
        sleeps = wait and not self.has_arrivals()
        if sleeps:
            if not self.tasks:
                raise ServerGoneError
            self.watch.now = self.tasks[0][0]
        arrived = []
        while self.has_arrivals():
            arrived.append(self.tasks.pop(0)[1])
        self.watch.now += costs.turn + len(arrived) * costs.sentence + (costs.wake if sleeps else 0)
        return [Orders(arrived, ())] if arrived else []

    def report(self, report):
        self.ends |= {number: self.watch.now for number, _ in report.ended}


def tasks_of(sentences):
    options = DecodingOptions(max_length=999, scores=False)
    return [
        (at, Task(number, 0, 0.0, False, Sentence([target, *[OTHER] * (source - 1)], options)))
        for number, (at, source, target) in enumerate(sentences)
    ]


def served(sentences, rows, encode_tokens):
    """When the server's loop reports each sentence: (time, source, target) each."""
    watch = Watch()
    server = TimedServer(tasks_of(sentences), watch)
    backend: Any = TimedBackend(rows, encode_tokens, watch)
    loop = ReplicaLoop(backend, server, TargetVocabulary(2, EOS, ()), SharedActivity().of(0), watch)
    assert loop.run()
    return server.ends


def simulated(sentences, rows, encode_tokens, cores=1):
    timeline = Timeline()
    ends: dict[int, float] = {}
    targets = {number: target for number, (_, _, target) in enumerate(sentences)}
    replica = Replica(
        timeline,
        Processors(timeline, cores, Turns()),
        COSTS,
        rows=rows,
        encode_tokens=encode_tokens,
        target_of=targets.pop,
        ended=lambda numbers: ends.update(dict.fromkeys(numbers, timeline.now)),
    )
    for at, task in sorted(tasks_of(sentences), key=lambda each: each[0]):
        timeline.at(at, partial(replica.submit, task))
    timeline.run(lambda: True)
    return ends


SENTENCES = st.lists(
    st.tuples(st.integers(0, 400).map(lambda count: count * MILLI / 4), st.integers(1, 40), st.integers(1, 90)),
    min_size=1,
    max_size=30,
)


@given(sentences=SENTENCES, rows=st.integers(1, 8), encode_tokens=st.sampled_from([1, 300, 2048]))
def test_every_sentence_ends_when_it_ends_in_the_server(sentences, rows, encode_tokens):
    ends = simulated(sentences, rows, encode_tokens)
    assert ends.keys() == set(range(len(sentences)))
    assert ends == pytest.approx(served(sentences, rows, encode_tokens), abs=1e-9)


def test_many_sentences_at_once_end_when_they_end_in_the_server():
    sentences = [(0.0, 1 + number % 37, 1 + number % 70) for number in range(150)]
    assert simulated(sentences, 32, 2048) == pytest.approx(served(sentences, 32, 2048), abs=1e-9)


def test_a_lone_sentence_takes_the_sum_of_its_parts():
    costs = COSTS.replica
    expected = costs.wake + costs.turn + costs.sentence + costs.encodes.at(10) + 20 * costs.steps.at(1)
    assert simulated([(0.0, 10, 20)], 4, 2048)[0] == pytest.approx(expected)


def test_sentences_that_decode_together_share_steps():
    together = max(simulated([(0.0, 4, 64)] * 4, 4, 2048).values())
    alone = max(simulated([(0.0, 4, 64)] * 4, 1, 2048).values())
    assert together < alone / 2


def test_the_steps_of_a_run_are_those_of_the_server():
    steps_at_once: Any = OrtBackend.steps_at_once
    assert steps_at_once.fget(None) == STEPS_AT_ONCE
