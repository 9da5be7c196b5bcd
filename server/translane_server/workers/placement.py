"""Divides the CPUs among the models, and the CPUs and rows of a model among its replicas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from translane_server.bundle.devices import Device
from translane_server.core.cpus import available_cpus
from translane_server.core.errors import SettingsError
from translane_server.settings.server_settings import ServerSettings

# In models with fewer parameters, the operators of a step are too short for several threads. In larger ones, a lone
# sentence is decoded sooner by all threads together. Measured in docs/decoding-costs.md.
_SMALL_MODEL = 20_000_000
# Larger models have one replica. A second copy of their weights takes much memory, and the memory's speed limits them
# however the threads are divided.
_LARGE_MODEL = 200_000_000

# More replicas would have no work: one process handles all requests. A larger model spends longer on a request, so more
# of its replicas have work.
_MOST_SMALL_REPLICAS = 16
_MOST_LARGER_REPLICAS = 64

# Default number of rows of each replica of a model that is not small, if there are many: keys and values take memory.
_ROWS = 16


@dataclass(frozen=True)
class Placement:
    """The replicas of a model.

    Attributes:
        rows: number of rows of each replica.
        threads: number of threads of each replica.
        lone_threads: number of threads of the first replica while the others have no work.
    """

    rows: tuple[int, ...]
    threads: int
    lone_threads: int = 1

    def lone_threads_of(self, number: int) -> int:
        """Number of threads of the replica `number` while the others have no work."""
        return self.threads if number else max(self.threads, self.lone_threads)

    @property
    def lone_rows(self) -> int:
        """Number of rows that the first replica decodes before another one begins.

        All threads together are of use to a few rows. More rows are decoded sooner by several replicas.
        """
        return self.lone_threads // 2


def divide_cpus(models: Sequence[str], cpus: int | None = None) -> dict[str, int]:
    """The number of CPUs of each model: equal parts, and at least one. The first models get what is left over.

    Args:
        models: names of the models.
        cpus: number of CPUs; by default the CPUs that this process may use.
    """
    parts = divided(cpus or available_cpus(), max(1, len(models)))
    return {name: max(1, part) for name, part in zip(models, parts, strict=False)}


def place_replicas(settings: ServerSettings, parameters: int, device: Device, cpus: int | None = None) -> Placement:
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
    if device == "cuda" and (settings.replicas or 1) > 1:
        raise SettingsError(f"--replicas is {settings.replicas}, and on cuda there is one: a step takes the whole GPU")
    if settings.replicas or settings.threads or device == "cuda" or parameters >= _LARGE_MODEL:
        number = settings.replicas or 1
        return Placement(divided(settings.rows_of(number), number), settings.threads or max(1, cpus // number))
    if parameters < _SMALL_MODEL:
        return _small_plan(settings, cpus)
    rows = settings.max_batch_size or max(settings.rows_of(1), _ROWS * cpus)
    if cpus == 1 or cpus > _MOST_LARGER_REPLICAS or rows // cpus < settings.beam_limit:
        return Placement(divided(settings.rows_of(1), 1), cpus)
    return Placement(divided(rows, cpus), threads=1, lone_threads=cpus)


def _small_plan(settings: ServerSettings, cpus: int) -> Placement:
    number = min(cpus, _MOST_SMALL_REPLICAS)
    while number > 1 and settings.rows_of(number) // number < settings.beam_limit:
        number -= 1
    return Placement(divided(settings.rows_of(number), number), threads=1 if number > 1 else cpus)


def divided(whole: int, number: int) -> tuple[int, ...]:
    """Divide a count into `number` equal parts. The first parts get one more each of what is left over."""
    each, more = divmod(whole, number)
    return tuple(each + (place < more) for place in range(number))
