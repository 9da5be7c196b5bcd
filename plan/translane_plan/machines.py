"""What a server runs on a machine: the server's own rules for front ends, replicas and rows, and their memory."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import ValidationError

from translane_plan.errors import PlanError
from translane_plan.profile import Length, Profile
from translane_plan.simulation.shape import Shape
from translane_server.dispatch.plan import ReplicaPlan, plan_replicas
from translane_server.errors import SettingsError
from translane_server.front_ends.shares import shares_of
from translane_server.settings import ServerSettings

_MOST_FRONT_ENDS = 64  # the largest value of the setting


@dataclass(frozen=True)
class Machine:
    """A server on a machine.

    Attributes:
        cores: cores of the machine.
        shape: its processes.
        threads: threads of each replica.
    """

    cores: int
    shape: Shape
    threads: int

    def memory(self, profile: Profile) -> float:
        """The memory of the server [bytes]."""
        memory, shape = profile.memory, self.shape
        of_rows = memory.row * sum(map(sum, shape.rows))
        each = memory.front_end + memory.weights
        return shape.front_ends * each + shape.replicas * memory.replica + of_rows


def machine_of(
    profile: Profile,
    cores: int,
    *,
    front_ends: int,
    replicas: int | None = None,
    rows: int | None = None,
) -> Machine:
    """The server that its settings make on a machine.

    Args:
        profile: of the model; its replicas have as many threads.
        cores: cores of the machine.
        front_ends: the server's setting.
        replicas: the server's setting; None takes the server's default, if its replicas have the profile's threads.
        rows: the server's setting.

    Raises:
        PlanError: the server would refuse these settings.
    """
    given: dict[str, Any] = {"model": "model", "front_ends": front_ends}
    given |= {name: value for name, value in (("replicas", replicas), ("rows", rows)) if value}
    found = _parts(profile, given, cores)
    if any(part.plan.threads != profile.threads for part in found) and profile.device == "cpu":
        number = replicas or max(front_ends, cores // profile.threads)
        found = _parts(profile, given | {"replicas": number, "threads": profile.threads}, cores)
    settings = found[0].settings
    shape = Shape(cores, tuple(part.plan.rows for part in found), settings.encode_tokens, settings.sentences_waiting)
    return Machine(cores, shape, profile.threads)


def fitting_front_ends(profile: Profile, cores: int, lengths: Sequence[Length], sentences: int) -> int:
    """The number of front ends that divides the cores as a request divides its processor time.

    Args:
        profile: of the model.
        cores: cores of a machine.
        lengths: of the sentences.
        sentences: sentences of a request.
    """
    front = profile.front_end.request + sentences * profile.front_end.sentence
    replica = sentences * sentence_work(profile, lengths)
    return min(max(1, math.ceil(cores * front / (front + replica) - 0.25)), cores, _MOST_FRONT_ENDS)


def sentence_work(profile: Profile, lengths: Sequence[Length], rows: int = 0) -> float:
    """The least work of a replica on a sentence of the mean length: its share of full steps and encoder runs [seconds].

    Threads of a replica count once.

    Args:
        profile: of the model.
        lengths: of the sentences.
        rows: rows of a full step; 0 takes the most that were measured.
    """
    costs = profile.replica
    rows = rows or costs.steps.counts[-1]
    source = statistics.fmean(length.source for length in lengths)
    target = statistics.fmean(length.target for length in lengths)
    tokens = costs.encodes.counts[-1]
    step = costs.steps.at(rows) / rows + costs.key * (source + target / 2)
    return target * step + source * costs.encodes.at(tokens) / tokens + costs.sentence


class _Part(NamedTuple):
    """A front end: its settings and its replicas."""

    settings: ServerSettings
    plan: ReplicaPlan


def _parts(profile: Profile, given: dict[str, Any], cores: int) -> list[_Part]:
    """The front ends of a server with these settings."""
    try:
        shares = shares_of(ServerSettings.model_validate(given), cores)
        return [
            _Part(each.settings, plan_replicas(each.settings, profile.parameters, profile.device, each.cpus))
            for each in shares
        ]
    except SettingsError as error:
        raise PlanError(str(error)) from None
    except ValidationError as error:  # settings that contradict each other
        raise PlanError(str(error.errors()[0]["msg"]).removeprefix("Value error, ")) from None
