"""Divides the CPUs among the models, and the CPUs and rows of a model among its replicas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from translane_server.cpus import available_cpus
from translane_server.devices import Device
from translane_server.errors import SettingsError
from translane_server.settings import ServerSettings

# Models with fewer parameters get a replica on each CPU: the operators of a step are too short for several threads.
# Measured in docs/decoding-costs.md.
_SMALL_MODEL = 20_000_000

# More replicas have no work, because a single process handles all requests.
_MOST_REPLICAS = 16


@dataclass(frozen=True)
class ReplicaPlan:
    """The replicas of a model.

    Attributes:
        rows: number of rows of each replica.
        threads: number of threads of each replica.
    """

    rows: tuple[int, ...]
    threads: int


def divide_cpus(models: Sequence[str], cpus: int | None = None) -> dict[str, int]:
    """The number of CPUs of each model: equal parts, and at least one. The first models get what is left over.

    Args:
        models: names of the models.
        cpus: number of CPUs; by default the CPUs that this process may use.
    """
    each, more = divmod(cpus or available_cpus(), max(1, len(models)))
    return {name: max(1, each + (place < more)) for place, name in enumerate(models)}


def plan_replicas(settings: ServerSettings, parameters: int, device: Device, cpus: int | None = None) -> ReplicaPlan:
    """The replicas by the settings; or by default, the replicas that suit the size of the model.

    Args:
        settings: settings of the model.
        parameters: number of parameters of the model.
        device: the device that runs the model.
        cpus: number of CPUs of the model; by default the CPUs that this process may use.

    Raises:
        SettingsError: the settings ask for several replicas on CUDA.
    """
    cpus = cpus or available_cpus()
    chosen = None if settings.replicas else _suitable_number(settings, parameters, device, cpus)
    number = settings.replicas or chosen or 1
    if device == "cuda" and number > 1:
        raise SettingsError(f"--replicas is {number}, and on cuda there is one: a step takes the whole GPU")
    rows, more = divmod(settings.rows_of(number), number)
    return ReplicaPlan(
        rows=tuple(rows + (replica < more) for replica in range(number)),
        threads=settings.threads or (1 if chosen and chosen > 1 else max(1, cpus // number)),
    )


def _suitable_number(settings: ServerSettings, parameters: int, device: Device, cpus: int) -> int:
    if device == "cuda" or settings.threads or parameters >= _SMALL_MODEL:
        return 1
    number = min(cpus, _MOST_REPLICAS)
    while number > 1 and settings.rows_of(number) // number < settings.beam_limit:
        number -= 1
    return number
