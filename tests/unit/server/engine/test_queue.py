from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from translane_server.engine.loop import PriorityQueue


def queue(*items):
    """A queue of pairs of an item and its priority."""
    waiting: PriorityQueue[Any] = PriorityQueue()
    for item, priority in items:
        waiting.add(item, priority)
    return waiting


def popped(waiting):
    return [waiting.pop() for _ in range(len(waiting))]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(-3, 3))), st.sets(st.integers(0, 9)))
def test_what_is_removed_never_comes_and_the_rest_keeps_its_order(items, unwanted):
    waiting = queue(*items)
    assert waiting.remove(unwanted.__contains__) == sum(item in unwanted for item, _ in items)
    assert list(waiting) == [item for item, _ in sorted(items, key=lambda pair: -pair[1]) if item not in unwanted]
    assert len(waiting) == len(popped(waiting))
