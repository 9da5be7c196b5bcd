"""What the store of translations keeps, what it forgets, and how much memory that takes."""

import random
import sys
import tracemalloc

import pytest

from translane_server.translation.cache import _LARGEST, _OVERHEAD, TranslationStore


def key(number):
    return number.to_bytes(32)


def size(answer):
    return sys.getsizeof(key(0)) + sys.getsizeof(answer) + _OVERHEAD


def test_what_nobody_asked_for_the_longest_is_forgotten():
    forgotten: list[int] = []
    store = TranslationStore(10 * size(b"12"), forgotten.append)
    for number in range(10):
        store.put(key(number), b"%2d" % number)
    assert store.get(key(0)) == b" 0"
    store.put(key(10), b"10")
    store.put(key(11), b"11")
    assert [number for number in range(12) if store.get(key(number)) is None] == [1, 2]
    assert sum(forgotten) == 2
    assert (len(store), store.bytes) == (10, 10 * size(b"12"))


def test_an_answer_is_kept_if_it_takes_at_most_an_eighth():
    answer = bytes(1000)
    for limit, kept in ((8 * size(answer), 1), (8 * size(answer) - 1, 0), (0, 0)):
        store = TranslationStore(limit)
        store.put(key(1), answer)
        assert len(store) == kept


def test_an_answer_has_a_mebibyte_at_most():
    most = _LARGEST - size(b"")
    store = TranslationStore(100 * _LARGEST)
    store.put(key(1), bytes(most + 1))
    store.put(key(2), bytes(most))
    assert (len(store), store.bytes) == (1, _LARGEST)


def test_the_last_answer_of_a_key_counts():
    store = TranslationStore(100_000)
    store.put(key(1), b"short")
    store.put(key(1), bytes(500))
    assert store.get(key(1)) == bytes(500)
    assert (len(store), store.bytes) == (1, size(bytes(500)))


def test_a_closed_store_keeps_nothing():
    store = TranslationStore(100_000)
    store.put(key(1), b"")
    assert store.get(key(1)) == b""
    store.close()
    store.put(key(2), b"")
    assert (len(store), store.bytes, store.get(key(1)), store.get(key(2))) == (0, 0, None, None)


@pytest.mark.parametrize("seed", range(20))
def test_it_is_a_list_in_the_order_of_use(seed):
    pick = random.Random(seed)
    limit = pick.randrange(2000, 20_000)
    store = TranslationStore(limit)
    expected: list[tuple[bytes, bytes]] = []  # the last one that was used comes last
    for _ in range(500):
        chosen = key(pick.randrange(40))
        found = next((answer for name, answer in expected if name == chosen), None)
        if pick.random() < 0.5:
            assert store.get(chosen) == found
            answer = found
        else:
            answer = pick.randbytes(pick.choice([0, 5, 100, 700, 3000]))
            store.put(chosen, answer)
            if 8 * size(answer) > limit:
                continue
        if answer is not None:
            expected = [entry for entry in expected if entry[0] != chosen] + [(chosen, answer)]
        while sum(size(each) for _, each in expected) > limit:
            expected.pop(0)
        assert len(store) == len(expected)
        assert store.bytes == sum(size(each) for _, each in expected) <= limit
        assert all(store._packed[name] == each for name, each in expected)


@pytest.mark.parametrize("length", [8, 60, 1000])
@pytest.mark.parametrize("count", [680, 690, 1360, 1370, 5500])
def test_the_bytes_are_the_memory_that_is_taken(count, length):
    """A table of 683 or 1366 entries is full, and grows with the next one."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        store = TranslationStore(100_000_000)
        for number in range(count):
            store.put(key(number), bytes(length))
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert 0.5 * store.bytes < taken <= store.bytes


def test_memory_stays_bounded_while_answers_come_and_go():
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        store = TranslationStore(1_000_000)
        for number in range(8000):
            store.put(key(number), bytes(number % 300))
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert 900_000 < store.bytes <= 1_000_000
    assert taken <= 1_000_000
