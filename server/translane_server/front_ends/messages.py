"""The messages between the parent and a front end. `replica.messages` frames them.

The parent sends the setup first. The front end answers with `replica.messages.Ready` when its ports are open, or with
the StartupError that stops it. Until then it answers `Ping` alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from prometheus_client import Metric

from translane_server.errors import RequestError
from translane_server.settings import ServerSettings


@dataclass(frozen=True)
class FrontEndSetup:
    """The setup of one front end.

    Attributes:
        number: number of the front end.
        settings: its part of the server's settings, with the ports that the server has.
        cpus: number of its CPUs.
        allowances: descriptor of the memory of limits that hold for all front ends; None without keys.
    """

    number: int
    settings: ServerSettings
    cpus: int
    allowances: int | None = None


# From the parent


class Ping(NamedTuple):
    """The front end must give a sign of life."""


class Reload(NamedTuple):
    """The front end must reload its models."""


class Stop(NamedTuple):
    """The front end must drain, and end.

    Attributes:
        grace: time that running requests get to finish [seconds].
    """

    grace: float


class Hurry(NamedTuple):
    """The front end, which drains, must end at once."""


class Collect(NamedTuple):
    """Asks for all metrics. The answer is a list of families."""


class Change(NamedTuple):
    """Asks for a change of a model. The answer is the method's response, as bytes.

    Attributes:
        method: a method of ModelService.
        request: the method's request, as bytes.
    """

    method: Literal["LoadModel", "UnloadModel", "ReloadModel"]
    request: bytes


class Question(NamedTuple):
    """A question that the front end must answer.

    Attributes:
        number: number of the question.
        content: what is asked.
    """

    number: int
    content: Collect | Change


# From the front end


class Pong(NamedTuple):
    """The front end's event loop runs."""


class Health(NamedTuple):
    """Whether the front end and its models serve.

    Attributes:
        states: states of grpc.health.v1, by the names of services.
    """

    states: Mapping[str, int]


class Refusal(NamedTuple):
    """Why a change is refused. Some errors cannot be pickled themselves: they make their messages.

    Attributes:
        kind: type of the error, which is made of what follows.
        message: its message.
        retry_after: the suggested delay before another try [seconds]; None where the error has none.
    """

    kind: type[RequestError]
    message: str
    retry_after: float | None = None


class Answer(NamedTuple):
    """The answer to a question.

    Attributes:
        number: number of the question.
        content: what was asked for.
    """

    number: int
    content: Sequence[Metric] | bytes | Refusal


class Stopped(NamedTuple):
    """The front end has answered all its calls, and ends.

    Attributes:
        drained: whether all accepted translations were finished.
    """

    drained: bool
