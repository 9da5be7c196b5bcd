from hypothesis import example, given
from hypothesis import strategies as st

from translane_server.runtime.graph_backend import group_sources


@given(st.lists(st.integers(1, 20), min_size=1, max_size=40), st.integers(20, 2000), st.integers(0, 50))
@example(lengths=[20, 1, 20, 1, 20, 1], capacity=130, run_cost=0)
def test_groups_hold_the_first_sources_beside_each_other(lengths, capacity, run_cost):
    groups = group_sources(lengths, capacity, run_cost)
    numbers = sorted(number for group in groups for number in group.numbers)
    assert numbers == list(range(len(numbers)))
    end = 0
    for group in groups:
        assert group.longest == max(lengths[number] for number in group.numbers)
        assert end <= group.start
        end = group.start + len(group.numbers) * group.longest
        assert end <= capacity
        assert sum(group.longest - lengths[number] for number in group.numbers) <= run_cost


def test_all_are_taken_where_there_is_room():
    assert [group.numbers for group in group_sources([7] * 5, 35, 0)] == [[0, 1, 2, 3, 4]]


def test_one_source_is_taken_however_little_room_there_is():
    assert [group.numbers for group in group_sources([9, 9], 9, 0)] == [[0]]


def test_similar_lengths_go_together_and_keep_their_order():
    groups = group_sources([4, 19, 5, 20, 4], 1000, 6)
    assert [(group.numbers, group.longest) for group in groups] == [([1, 3], 20), ([0, 2, 4], 5)]


def test_where_runs_are_dear_there_is_one():
    assert [group.numbers for group in group_sources([4, 19, 5], 1000, 1 << 30)] == [[0, 1, 2]]


def test_the_room_is_used():
    (group,) = group_sources([200] * 60, 2048, 6)
    assert len(group.numbers) == 10
