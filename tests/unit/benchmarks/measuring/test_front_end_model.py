import pytest

from benchmarks.measuring.front_end_model import Costs, Machine, others_of, simulate

COSTS = Costs(front_end=0.001, threads=0.0, alone=0.004, more=0.001)
MANY = 1000


def test_one_front_end_alone_takes_what_its_event_loop_can():
    machine = Machine(cores=MANY, front_ends=1, replicas=0, connections=8, calls=64)
    assert simulate(machine, COSTS).rate == pytest.approx(1000, rel=0.01)


def test_front_ends_with_enough_connections_add_up():
    machine = Machine(cores=MANY, front_ends=4, replicas=0, connections=1024, calls=1024)
    assert simulate(machine, COSTS).rate == pytest.approx(4000, rel=0.01)


def test_short_cores_slow_down_all_parts_alike():
    machine = Machine(cores=2, front_ends=4, replicas=0, connections=1024, calls=1024)
    assert simulate(machine, COSTS).rate == pytest.approx(2000, rel=0.01)
    more = Costs(front_end=0.001, threads=0.0005, alone=0.004, more=0.001)
    assert simulate(machine, more).rate == pytest.approx(2000 / 1.5, rel=0.01)


def test_other_programs_are_found_by_what_they_take():
    machine = Machine(cores=2, front_ends=4, replicas=0, connections=64, calls=64, others=3.0)
    assert others_of(machine, COSTS, simulate(machine, COSTS).rate) == pytest.approx(3, abs=0.05)
    assert others_of(machine, COSTS, 1e6) == 0


def test_a_lone_call_waits_for_each_part_in_turn():
    found = simulate(Machine(cores=MANY, front_ends=1, replicas=1, connections=1, calls=1), COSTS)
    assert found.p95 == pytest.approx(0.005)
    assert found.rate == pytest.approx(200)
    costs = Costs(front_end=0.001, threads=0.0, alone=0.004, more=0.001, caller=0.002)
    found = simulate(Machine(cores=MANY, front_ends=1, replicas=1, connections=1, calls=1, callers=1), costs)
    assert found.p95 == pytest.approx(0.007)


def test_sentences_that_a_replica_decodes_together_cost_less():
    costs = Costs(front_end=1e-6, threads=0.0, alone=0.004, more=0.001)
    found = simulate(Machine(cores=MANY, front_ends=1, replicas=1, connections=1, calls=9), costs)
    assert found.rate == pytest.approx(9 / 0.012, rel=0.02)


def test_a_single_connection_gets_the_part_of_one_front_end():
    machine = Machine(cores=MANY, front_ends=4, replicas=0, connections=1, calls=64)
    assert simulate(machine, COSTS).rate == pytest.approx(1000, rel=0.01)


def test_the_same_machine_is_simulated_alike_each_time():
    machine = Machine(cores=4, front_ends=3, replicas=4, connections=7, calls=50)
    assert simulate(machine, COSTS, 2) == simulate(machine, COSTS, 2)
