"""Profiles with round costs, for tests of the simulation."""

from __future__ import annotations

from typing import Any

from translane_plan.profile import Curve, Length, LoopCosts, Memory, Profile, ReplicaCosts, Traffic

MILLI = 1 / 1024
"""A time that sums up exactly [seconds]."""


def profile(
    *,
    step: float = MILLI,
    row: float = 0.0,
    encode: float = 0.0,
    key: float = 0.0,
    turn: float = 0.0,
    sentence: float = 0.0,
    wake: float = 0.0,
    delay: float = 0.0,
    request: float = 0.0,
    front_wake: float = 0.0,
    lengths: tuple[Length, ...] = (Length(4, 8),),
    **fields: Any,
) -> Profile:
    """A profile whose steps take `step`, and `row` more for each row; its encoder takes `encode` for each token."""
    values: dict[str, Any] = {
        "model": "demo",
        "precision": "int8",
        "parameters": 7_000_000,
        "device": "cpu",
        "processor": "Some processor",
        "versions": {},
        "measured": "2026-11-01T00:00:00Z",
        "threads": 1,
        "run_cost": 6,
        "source_capacity": 256,
        "replica": ReplicaCosts(
            steps=Curve(counts=(1, 64), seconds=(step + row, step + 64 * row)),
            key=key,
            encodes=Curve(counts=(1, 1024), seconds=(encode, 1024 * encode)),
            turn=turn,
            sentence=sentence,
            wake=wake,
        ),
        "front_end": LoopCosts(request=request, wake=front_wake),
        "caller": LoopCosts(request=0.0),
        "delay": delay,
        "start": 1.0,
        "memory": Memory(front_end=1e8, weights=2e7, replica=5e7, row=1e5),
        "traffic": Traffic(received=500, sent=400),
        "lengths": lengths,
    }
    return Profile(**{**values, **fields})
