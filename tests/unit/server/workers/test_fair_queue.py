"""Whose sentence is next, and when."""

import random
from collections import Counter
from typing import Any

import pytest

from translane_server.engine.options import DecodingOptions
from translane_server.engine.sequence import Sentence
from translane_server.workers.fair_queue import FairQueue
from translane_server.workers.inflight import AcceptedSequence, InFlight
from translane_server.workers.worker import Worker


def fill(queue, caller, count, **keywords):
    return [queue.add(f"{caller}{number}", caller, **keywords) for number in range(count)]


def drain(queue):
    items = []
    while (first := queue.first) is not None:
        items.append(queue.pop())
        assert items[-1] == first
    return items


def test_costly_items_count_for_more():
    queue: FairQueue[str] = FairQueue()
    fill(queue, "a", 3, cost=4)
    fill(queue, "b", 9, cost=1)
    assert drain(queue) == ["a0", "b0", "b1", "b2", "b3", "a1", "b4", "b5", "b6", "b7", "a2", "b8"]


def test_who_never_has_two_waiting_gets_no_more_than_others():
    queue: FairQueue[str] = FairQueue()
    fill(queue, "a", 100)
    queue.add("b", "b", cost=1)
    taken: Counter[str] = Counter()
    for _ in range(100):
        item = queue.pop()
        taken[item[0]] += 1
        if item == "b":
            queue.add("b", "b", cost=1)
    assert abs(taken["a"] - taken["b"]) <= 2


def test_who_comes_back_has_no_claim_to_the_time_away():
    queue: FairQueue[str] = FairQueue()
    queue.add("b", "b")
    fill(queue, "a", 100)
    for _ in range(50):
        queue.pop()
    fill(queue, "b", 50)
    assert Counter(queue.pop()[0] for _ in range(20)) == {"a": 10, "b": 10}


def test_entries_that_come_and_go_leave_nothing():
    queue: FairQueue[str] = FairQueue()
    queue.add("first", "first")
    for number in range(10_000):
        assert queue.remove(queue.add("x", f"caller {number}"))
    assert sum(len(group.lines) + len(group._finished) for group in queue._levels.values()) < 300
    assert drain(queue) == ["first"]
    assert queue.first is None
    assert not queue._levels


def test_what_callers_have_used_counts_though_the_queue_was_empty_for_a_moment():
    queue: FairQueue[str] = FairQueue()
    queue.add("a", "a", cost=100)
    assert queue.pop() == "a"
    queue.add("a again", "a", cost=100)
    queue.add("b", "b")
    assert drain(queue) == ["b", "a again"]


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_each_item_leaves_once_higher_levels_and_priorities_first(seed):
    pick = random.Random(seed)
    queue: FairQueue[int] = FairQueue()
    waiting, asked, gone = {}, {}, []
    for number in range(2000):
        what = pick.random()
        if what < 0.5:
            caller, level, priority = asked[number] = pick.choice("abcde"), pick.randrange(3), pick.randrange(-2, 3)
            waiting[number] = queue.add(number, caller, level=level, priority=priority, cost=pick.randint(1, 9))
        elif what < 0.6:
            queue.charge(pick.choice("abcde"), pick.randrange(3), pick.randint(0, 99))
        elif what < 0.75 and waiting:
            gone.append(waiting.pop(pick.choice(list(waiting))))
            assert queue.remove(gone[-1])
        elif waiting:
            first = queue.first
            assert first is not None
            caller, level, _ = asked[first]
            assert level == max(asked[each][1] for each in waiting)
            own = [each for each in waiting if asked[each][:2] == (caller, level)]
            assert first == min(own, key=lambda each: (-asked[each][2], each))
            assert queue.pop() == first
            gone.append(waiting.pop(first))
        assert (queue.size, queue.of_callers) == (len(waiting), Counter(asked[each][0] for each in waiting))
        assert not (gone and queue.remove(pick.choice(gone)))
    left = []
    while queue.first is not None:
        left.append(queue.pop())
    assert sorted(left) == sorted(waiting)
    assert not queue._levels


@pytest.mark.parametrize("returns", [False, True])
def test_who_gets_more_work_than_expected_pays_for_it(returns):
    queue: FairQueue[str] = FairQueue()
    fill(queue, "a", 1 if returns else 9)
    fill(queue, "b", 9)
    assert [queue.pop(), queue.pop()] == ["a0", "b0"]
    queue.charge("a", 0, 4)
    if returns:
        fill(queue, "a", 8)
    expected = ["b1", "b2", "b3", "b4"]
    assert [queue.pop() for _ in expected] == expected
    assert {queue.pop(), queue.pop()} == {"a0" if returns else "a1", "b5"}


def test_nobody_pays_where_nothing_waits():
    queue: FairQueue[str] = FairQueue()
    queue.charge("a", 0, 1000)
    fill(queue, "a", 1)
    fill(queue, "b", 1)
    assert drain(queue) == ["a0", "b0"]


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
    while worker.take(make(number)):
        number += 1
    return number


def started():
    connection: Any = Sink()
    return Worker(lambda: connection)


def test_one_sentence_of_much_work_waits():
    worker = started()
    assert filled(worker, lambda number: accepted(number, beam_size=4, min_length=250)) == 3
    assert (worker.active_rows, len(worker.waiting)) == (8, 1)
    worker.remove(0)
    assert (worker.active_rows, len(worker.waiting)) == (8, 0)
    assert worker.take(accepted(3, beam_size=4, min_length=250))


def test_a_short_sentence_has_room_behind_one_of_little_work():
    worker = started()
    for number in range(2):
        assert worker.take(accepted(number, beam_size=4, min_length=250))
    assert worker.take(accepted(2, beam_size=2))
    assert not worker.take(accepted(3, beam_size=4, min_length=250))
    assert worker.take(accepted(3))


def test_nothing_is_left_of_sentences_that_have_gone():
    pick, worker = random.Random(3), started()
    numbers = iter(range(10_000))
    for _ in range(2000):
        each = accepted(next(numbers), beam_size=pick.choice([1, 2, 4]), min_length=pick.choice([0, 100, 250]))
        if not worker.take(each) and worker.sequences:
            worker.remove(pick.choice([*worker.sequences]))
    while worker.sequences:
        worker.remove(pick.choice([*worker.sequences]))
    assert (worker.rows, worker.active_rows, len(worker.waiting), worker._waiting_cost) == (0, 0, 0, 0)
