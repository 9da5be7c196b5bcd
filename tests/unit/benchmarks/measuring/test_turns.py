"""Ways to call a server that take turns."""

from functools import partial

from benchmarks.measuring.turns import Way, table, take_turns


def test_a_row_has_the_medians_and_what_each_round_has_more_than_the_first_way():
    direct = Way("direct", lambda: None, (), waits=[1e-3, 3e-3, 2e-3], used=[(0.0, 1e-3)] * 3)
    through = Way(
        "through", lambda: None, (), waits=[2e-3, 3.5e-3, 3e-3], used=[(5e-4, 1e-3), (5e-4, 2e-3), (1e-3, 2e-3)]
    )
    lines = table({"call": [direct, through]}, ["Envoy", "server"]).splitlines()
    assert lines[2] == "| call | direct | 2.00 | +0.00 | 0.00 | 1.00 |"
    assert lines[3] == "| call | through | 3.00 | +1.00 | 0.50 | 2.00 |"
    assert len(lines) == 4
    assert lines[0] == "| call | way | median [ms] | to the first way [ms] | Envoy [ms] | server [ms] |"


def test_a_way_counts_each_call():
    calls = []
    way = Way("direct", lambda: calls.append(1), ())
    way.measure(3)
    assert (len(calls), len(way.waits), way.used) == (3, 1, [()])


def test_each_way_is_first_in_its_turn():
    order: list[str] = []
    ways = [Way(name, partial(order.append, name), ()) for name in "abc"]
    take_turns({"call": ways}, rounds=3, calls=1)
    assert "".join(order) == "abcbcacab"
    assert [len(way.waits) for way in ways] == [3, 3, 3]
