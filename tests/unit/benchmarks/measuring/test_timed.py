"""A decoder that tells where its time goes."""

import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks.measuring.timed import Clock, TimedBackend, TimedDecoder
from benchmarks.places import DEMO
from translane_server.backend import RowMove
from translane_server.bundle import load_bundle
from translane_server.options import DecodingOptions
from translane_server.sentence import Sentence

WAIT = 0.05  # seconds


def test_a_wait_counts_where_it_is_timed_and_not_elsewhere():
    clock = Clock()
    before = clock.now()
    time.sleep(WAIT)
    assert clock.now() - before < WAIT
    clock.timed(time.sleep)(WAIT)
    assert clock.now() - before >= WAIT
    assert clock.runtime >= WAIT


def test_on_cuda_what_counts_is_the_wait_for_the_device():
    sessions: Any = SimpleNamespace(cuda=SimpleNamespace(synchronize=lambda: time.sleep(WAIT)))
    clock = Clock()
    clock.watch(sessions)
    assert clock.runtime == 0
    sessions.cuda.synchronize()
    assert clock.runtime >= WAIT


class Backend:
    """Takes its time where it says so, by a clock of its own."""

    rows, source_capacity, target_capacity, has_attention, steps_at_once = 4, 8, 9, False, 3
    stops_between_steps = False

    def __init__(self):
        self.seconds = 0.0
        self.runtime = 0.0

    def now(self):
        return self.seconds

    def encode_ahead(self, sources):
        self.seconds += 1
        return len(sources)

    def enter(self, sources, rows, allowed=()):
        self.seconds += 2

    def decode_step(self, token_ids, positions, needs=None):
        self.seconds += 4
        self.runtime += 3

    def decode_ahead(self, token_ids, positions, steps, stops):
        self.seconds += 8
        self.runtime += 5
        return np.zeros((steps, len(token_ids)), np.int64)

    def move_rows(self, moves):
        self.seconds += 16

    def close(self):
        raise AssertionError("its owner closes it")


def test_every_call_counts_as_what_it_is():
    backend: Any = Backend()
    backend.seconds = 1000.0  # before the first call, which does not count
    timed = TimedBackend(backend, backend)
    assert timed.times.total == 0
    assert timed.encode_ahead([[1], [2]]) == 2
    timed.enter([0, 1], [0, 1])
    two, positions = np.zeros(2, np.int64), np.zeros(2, np.int32)
    timed.decode_step(two, positions)
    backend.seconds += 0.5  # outside of the backend
    timed.decode_ahead(two[:1], positions[:1], 3)
    timed.move_rows([RowMove(0, 1, 5, 0), RowMove(1, 0, 5, 8), RowMove(0, 2, 5, 0)])
    backend.seconds += 100.0  # after the last one
    timed.close()
    times = timed.times
    assert (times.encode, times.decode, times.move) == (3, 12, 16)
    assert (times.total, times.runtime) == (31.5, 8)
    assert (times.steps, times.rows) == (4, 5)
    assert (times.reordered_rows, times.moved_rows) == (2, 1)


@pytest.mark.parametrize("scores", [True, False])
@pytest.mark.parametrize("streams", [0, 1, 3])
def test_all_steps_are_counted_and_parts_fit_the_whole(scores, streams):
    decoder = TimedDecoder(load_bundle(DEMO), rows=3, threads=1, ends=False)
    sentences = [Sentence((5, 6, 7, 0), DecodingOptions(5, scores=scores))] * 3
    for _ in range(2):  # a decoder may be used again
        times = decoder.decode(sentences, streams)
        assert (times.steps, times.rows) == (5, 15)
        assert 0 < times.runtime < times.encode + times.decode + times.move < times.total
    decoder.close()
