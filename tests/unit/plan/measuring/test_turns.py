"""How long processes keep a core: of the kernel, and measured."""

import os

from translane_plan.measuring import turns
from translane_plan.profile import Turns


def test_turns_are_measured_on_a_core():
    found = turns.measured_turns(min(os.sched_getaffinity(0)))
    assert 0 < found.slice <= 1
    assert 0 < found.tick <= 1


def test_turns_that_nobody_tells_are_those_of_linux(monkeypatch, tmp_path):
    own = tmp_path / "sched"
    own.write_text("se.vruntime  :  1.5\nse.slice                                     :              2800000\n")
    monkeypatch.setattr(turns, "_OWN", own)
    monkeypatch.setattr(turns, "_gaps", lambda _: [0.003] * 5 + [0.005] * 8)
    assert turns.measured_turns(min(os.sched_getaffinity(0))) == Turns(slice=0.0028, tick=0.005)
    monkeypatch.setattr(turns, "_OWN", tmp_path / "none")
    monkeypatch.setattr(turns, "_gaps", lambda _: [])
    assert turns.measured_turns(min(os.sched_getaffinity(0))) == Turns()
