"""Servers on machines: their shape is what the server's own rules say."""

from typing import Any

import pytest

from helpers.plan_profiles import MILLI, profile
from translane_plan.errors import PlanError
from translane_plan.machines import fitting_front_ends, machine_of, sentence_work
from translane_plan.profile import Length, LoopCosts
from translane_server.dispatch.plan import plan_replicas
from translane_server.settings import ServerSettings

BASE: dict[str, Any] = {"parameters": 77_000_000}
LARGE: dict[str, Any] = {"parameters": 600_000_000, "threads": 4}


@pytest.mark.parametrize("cores", [2, 8, 16])
def test_without_flags_a_server_of_one_front_end_has_its_default(cores):
    plan = plan_replicas(ServerSettings.model_validate({"model": "x"}), 7_000_000, "cpu", cores)
    assert machine_of(profile(), cores, front_ends=1).shape.rows == (plan.rows,)


def test_cores_and_replicas_are_divided_among_front_ends():
    machine = machine_of(profile(), 16, front_ends=4)
    assert [len(rows) for rows in machine.shape.rows] == [4, 4, 4, 4]
    assert machine.shape.replicas == 16
    machine = machine_of(profile(**BASE), 6, front_ends=4, replicas=5)
    assert [len(rows) for rows in machine.shape.rows] == [2, 1, 1, 1]


def test_replicas_have_the_threads_of_the_profile():
    machine = machine_of(profile(**LARGE), 8, front_ends=1)
    assert machine.shape.replicas == 2
    assert machine.threads == 4
    assert machine_of(profile(threads=1), 1, front_ends=1).shape.replicas == 1


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ({"front_ends": 9}, r"--front-ends \(9\) must be at most the CPUs granted \(8\)"),
        ({"front_ends": 4, "replicas": 3}, r"--front-ends \(4\) must be at most --replicas \(3\)"),
        ({"front_ends": 1, "replicas": 8, "rows": 4}, r"--replicas \(8\) must be at most --rows \(4\)"),
    ],
)
def test_what_the_server_would_refuse_is_refused(flags, problem):
    with pytest.raises(PlanError, match=problem):
        machine_of(profile(), 8, **flags)


def test_memory_is_that_of_all_processes():
    machine = machine_of(profile(), 8, front_ends=2, replicas=4, rows=64)
    assert machine.memory(profile()) == 2 * (1e8 + 2e7) + 4 * 5e7 + 64 * 1e5


def test_front_ends_get_their_part_of_the_cores():
    lengths = [Length(8, 16)]
    work = sentence_work(profile(row=MILLI), lengths)
    costs = profile(row=MILLI, front_end=LoopCosts(request=work))
    assert fitting_front_ends(costs, 8, lengths, 1) == 4
    assert fitting_front_ends(costs, 8, lengths, 16) == 1
    assert fitting_front_ends(costs, 1, lengths, 1) == 1
    assert fitting_front_ends(profile(front_end=LoopCosts(request=10.0)), 1024, lengths, 1) == 64


def test_the_work_of_a_sentence_is_its_share_of_full_steps():
    assert sentence_work(profile(step=64 * MILLI), [Length(1, 10)]) == pytest.approx(10 * MILLI)
    assert sentence_work(profile(step=1e-9, encode=MILLI, sentence=2 * MILLI), [Length(7, 1)]) == pytest.approx(
        9 * MILLI
    )
