"""How much a worker is sent at once."""

import random
from typing import Any

from translane_server.engine.options import DecodingOptions
from translane_server.engine.sequence import Sentence
from translane_server.workers.inflight import AcceptedSequence, InFlight
from translane_server.workers.worker import Worker


class Sink:
    """A connection that takes sequences, and does nothing."""

    rows = 8

    def submit(self, sequence):
        """Take it."""


def accepted(number, *, length=4, **options):
    sentence = Sentence((5,) * length, DecodingOptions(max_length=256, **options))
    return AcceptedSequence(number, 0, 0.0, False, sentence, InFlight([None], 1, streamed=False, caller=""), 0)


def filled(worker, make):
    """Send as many sequences as there is room for, and return how many."""
    number = 0
    while worker.has_room_for(make(number)):
        worker.send(make(number))
        number += 1
    return number


def started():
    connection: Any = Sink()
    return Worker(lambda: connection)


def test_short_sentences_wait_for_all_rows():
    worker = started()
    assert filled(worker, accepted) == 16
    assert (worker.active_rows, len(worker.waiting)) == (8, 8)


def test_one_sentence_of_much_work_waits():
    worker = started()
    assert filled(worker, lambda number: accepted(number, beam_size=4, min_length=250)) == 3
    assert (worker.active_rows, len(worker.waiting)) == (8, 1)
    worker.remove(0)
    assert (worker.active_rows, len(worker.waiting)) == (8, 0)
    assert worker.has_room_for(accepted(3, beam_size=4, min_length=250))


def test_a_short_sentence_has_room_behind_one_of_little_work():
    worker = started()
    for number in range(2):
        worker.send(accepted(number, beam_size=4, min_length=250))
    worker.send(accepted(2, beam_size=2))
    assert worker.has_room_for(accepted(3))
    assert not worker.has_room_for(accepted(3, beam_size=4, min_length=250))


def test_nothing_is_left_of_sentences_that_have_gone():
    pick, worker = random.Random(3), started()
    numbers = iter(range(10_000))
    for _ in range(2000):
        each = accepted(next(numbers), beam_size=pick.choice([1, 2, 4]), min_length=pick.choice([0, 100, 250]))
        if worker.has_room_for(each):
            worker.send(each)
        elif worker.sequences:
            worker.remove(pick.choice([*worker.sequences]))
    while worker.sequences:
        worker.remove(pick.choice([*worker.sequences]))
    assert (worker.rows, worker.active_rows, len(worker.waiting), worker._waiting_cost) == (0, 0, 0, 0)
