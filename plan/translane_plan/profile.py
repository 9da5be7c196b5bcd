"""A profile: what sentences of one model cost on one machine. `translane-plan measure` writes it, as JSON.

All times are seconds. Those of a part are its processor time, unless a field says otherwise.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from translane_plan.errors import PlanError
from translane_server.devices import Device
from translane_server.files import parse_json, read_regular
from translane_server.settings_loader import what_is_wrong

_MOST_BYTES = 1 << 24  # of a profile's file
_MOST_POINTS = 64  # of a curve
_SHORTEST_STEP = 1e-9  # seconds; without a cost, the work of a sentence would be nothing

Seconds = Annotated[float, Field(ge=0, le=3600)]
Count = Annotated[int, Field(ge=1, le=1 << 20)]
Bytes = Annotated[float, Field(ge=0, le=1 << 50)]


class Length(NamedTuple):
    """The lengths of a sentence [tokens], the end of the sentence included.

    Attributes:
        source: source tokens.
        target: decoder steps.
    """

    source: Annotated[int, Field(ge=1, le=65536)]
    target: Annotated[int, Field(ge=1, le=65536)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Curve(_Part):
    """Seconds by a count, measured at some counts.

    Attributes:
        counts: the counts, ascending.
        seconds: the seconds of each.
    """

    counts: Annotated[tuple[Count, ...], Field(min_length=1, max_length=_MOST_POINTS)]
    seconds: Annotated[tuple[Seconds, ...], Field(min_length=1, max_length=_MOST_POINTS)]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(self.counts) != len(self.seconds):
            raise ValueError("counts and seconds are not equally many")
        if any(low >= high for low, high in pairwise(self.counts)):
            raise ValueError("the counts do not ascend")
        return self

    def at(self, count: float) -> float:
        """The seconds of `count`: on the line through the two measured points that are nearest.

        Beyond the points, the line falls no lower than to the last point, or to the first point's share by its count.
        So the seconds of counts above 0 are positive where those of the points are.
        """
        if len(self.counts) == 1:
            return self.seconds[0]
        low = min(max(bisect_right(self.counts, count) - 1, 0), len(self.counts) - 2)
        first, second = self.counts[low], self.counts[low + 1]
        slope = (self.seconds[low + 1] - self.seconds[low]) / (second - first)
        found = max(0.0, self.seconds[low] + (count - first) * slope)
        if count < self.counts[0]:
            return max(found, self.seconds[0] * count / self.counts[0])
        return max(found, self.seconds[-1]) if count > self.counts[-1] else found


class ReplicaCosts(_Part):
    """What a replica works.

    Attributes:
        steps: a decoder step, by its rows, as if its attention read no keys.
        key: what a step takes longer for each key that its rows read: a source token, or a target token so far.
        encodes: a run of the encoder, by its source tokens, padding included.
        turn: a turn of the replica's loop, beside its steps and its encoder run.
        sentence: a sentence, beside these.
        wake: a turn that begins with sleep, beyond other turns.
    """

    steps: Curve
    key: Seconds
    encodes: Curve
    turn: Seconds
    sentence: Seconds
    wake: Seconds

    @model_validator(mode="after")
    def _check(self) -> Self:
        if min(self.steps.seconds) < _SHORTEST_STEP:
            raise ValueError(f"a decoder step takes at least {_SHORTEST_STEP:g} seconds, not {min(self.steps.seconds)}")
        return self


class LoopCosts(_Part):
    """What a process with an event loop works: a front end, or a program of callers.

    Attributes:
        request: a request, from its arrival to its answer, while others keep the process awake.
        sentence: each sentence of it.
        dispatch: each sentence, for each replica beyond the first that its dispatcher chooses from.
        wake: what begins with sleep, beyond what does not.
        threads: the share of this time that threads beside the event loop take.
        after: the share of this time that comes after a message has gone, and so delays others alone.
    """

    request: Seconds
    sentence: Seconds = 0.0
    dispatch: Seconds = 0.0
    wake: Seconds = 0.0
    threads: Annotated[float, Field(ge=0, lt=1)] = 0.0
    after: Annotated[float, Field(ge=0, lt=1)] = 0.0


class Turns(_Part):
    """How long a process keeps a core that others wait for. The defaults are those of Linux on two cores.

    Attributes:
        slice: time that a process has a core at least.
        tick: time between two moments at which the kernel may take the core from a process that neither sleeps nor
            wakes others.
    """

    slice: Annotated[float, Field(ge=0, le=1)] = 0.0014
    tick: Annotated[float, Field(ge=1e-5, le=1)] = 0.004


class Memory(_Part):
    """Resident memory [bytes].

    Attributes:
        front_end: a front end.
        weights: what the replicas of a front end share.
        replica: a replica, beside its rows and what it shares.
        row: a row: the keys and values of a hypothesis.
    """

    front_end: Bytes
    weights: Bytes
    replica: Bytes
    row: Bytes


class Traffic(_Part):
    """Bytes of a request of one sentence on the wire, with the frames of HTTP/2, TCP and IP.

    Attributes:
        received: bytes that the server receives.
        sent: bytes that the server sends.
    """

    received: Bytes
    sent: Bytes


class Profile(_Part):
    """What sentences of a model cost.

    Attributes:
        format: version of this format.
        model: name of the model.
        precision: precision of the bundle.
        parameters: number of parameters of the model.
        device: what runs the model.
        processor: name of the processor.
        versions: versions of the packages that decide about speed.
        measured: when it was measured.
        threads: threads of a replica.
        run_cost: padded source tokens that cost as much as one more run of the encoder.
        source_capacity: longest source of a row [tokens].
        replica: work of a replica.
        front_end: work of a front end.
        caller: work of the load generator that measured.
        delay: time on the clock from a message to the sleeping process that it wakes.
        turns: how processes take turns on a core.
        start: time on the clock from the start of a server to its first translation.
        memory: memory of a server.
        traffic: bytes on the wire.
        lengths: lengths of the sentences that were measured.
    """

    format: Literal[1] = 1
    model: Annotated[str, Field(max_length=200)]
    precision: Annotated[str, Field(max_length=20)]
    parameters: Annotated[int, Field(ge=1, le=10**13)]
    device: Device
    processor: Annotated[str, Field(max_length=200)]
    versions: Annotated[dict[str, str], Field(max_length=20)]
    measured: Annotated[str, Field(max_length=40)]
    threads: Annotated[int, Field(ge=1, le=1024)]
    run_cost: Annotated[int, Field(ge=0, le=1 << 20)]
    source_capacity: Annotated[int, Field(ge=1, le=1 << 20)]
    replica: ReplicaCosts
    front_end: LoopCosts
    caller: LoopCosts
    delay: Seconds
    turns: Turns = Turns()
    start: Seconds
    memory: Memory
    traffic: Traffic
    lengths: Annotated[tuple[Length, ...], Field(min_length=1, max_length=10_000)]


def read_profile(path: Path) -> Profile:
    """Read a profile.

    Raises:
        PlanError: the file cannot be read, or holds no profile.
    """
    try:
        return Profile.model_validate(parse_json(read_regular(path, _MOST_BYTES)))
    except OSError as error:
        raise PlanError(f"profile {path}: it cannot be read: {error.strerror}") from None
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(map(str, problem["loc"]))
        wrong = f"{place}: {what_is_wrong(problem)}" if place else "it is no profile"
        raise PlanError(f"profile {path}: {wrong}") from None
    except ValueError as error:
        raise PlanError(f"profile {path}: it is not JSON: {error}") from None


def write_profile(path: Path, profile: Profile) -> None:
    """Write a profile.

    Raises:
        PlanError: the file cannot be written.
    """
    try:
        path.write_text(profile.model_dump_json(indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise PlanError(f"profile {path}: it cannot be written: {error.strerror}") from None
