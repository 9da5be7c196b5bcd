"""How much a replica is sent at once."""

import random

from translane_server.engine.options import DecodingOptions
from translane_server.engine.sequence import Sentence, Task
from translane_server.workers.replica_load import ReplicaLoad
from translane_server.workers.submission import Accepted, Submission


class Sink:
    """A replica that takes tasks, and does nothing."""

    rows = 8
    is_responsive = True

    async def start(self, listener):
        """Nothing starts."""

    def submit(self, task):
        """Take it."""

    def cancel(self, number):
        """Nothing is decoded."""

    async def stop(self):
        """Nothing ends."""


def accepted(number, *, length=4, **options):
    sentence = Sentence((5,) * length, DecodingOptions(max_length=256, **options))
    return Accepted(Submission(1, streamed=False), 0, Task(number, 0, 0.0, False, sentence))


def filled(load, make):
    """Send as many sentences as there is room for, and return how many."""
    number = 0
    while load.has_room_for(make(number).task):
        load.send(make(number))
        number += 1
    return number


def started():
    return ReplicaLoad(Sink())


def test_short_sentences_wait_for_all_rows():
    load = started()
    assert filled(load, accepted) == 16
    assert (load.active_rows, load.waiting) == (8, 8)


def test_one_sentence_of_much_work_waits():
    load = started()
    assert filled(load, lambda number: accepted(number, beam_size=4, min_length=250)) == 3
    assert (load.active_rows, load.waiting) == (8, 1)
    load.remove(0)
    assert (load.active_rows, load.waiting) == (8, 0)
    assert load.has_room_for(accepted(3, beam_size=4, min_length=250).task)


def test_a_short_sentence_has_room_behind_one_of_little_work():
    load = started()
    for number in range(2):
        load.send(accepted(number, beam_size=4, min_length=250))
    load.send(accepted(2, beam_size=2))
    assert load.has_room_for(accepted(3).task)
    assert not load.has_room_for(accepted(3, beam_size=4, min_length=250).task)


def test_nothing_is_left_of_sentences_that_have_gone():
    pick, load = random.Random(3), started()
    numbers = iter(range(10_000))
    for _ in range(2000):
        each = accepted(next(numbers), beam_size=pick.choice([1, 2, 4]), min_length=pick.choice([0, 100, 250]))
        if load.has_room_for(each.task):
            load.send(each)
        elif load.accepted:
            load.remove(pick.choice([*load.accepted]))
    while load.accepted:
        load.remove(pick.choice([*load.accepted]))
    assert (load.rows, load.active_rows, load.waiting, load._waiting_cost) == (0, 0, 0, 0)
