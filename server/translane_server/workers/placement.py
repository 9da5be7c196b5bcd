"""Divides the CPUs among the models, and the CPUs and rows of a model among its replicas."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial

from translane_server.bundle.devices import Device
from translane_server.core.errors import SettingsError
from translane_server.core.machine import available_cpus

# In models with fewer parameters, the operators of a step are too short for several threads. In larger ones, a lone
# sentence is decoded sooner by all threads together. Measured in docs/benchmarks.md.
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
    """The replicas of a model."""

    rows: tuple[int, ...]  # number of rows of each replica
    threads: int  # number of threads of each replica
    lone_threads: int = 1  # number of threads of the first replica while the others have no work
    # number of rows of each spare replica. Spare replicas run while other models leave CPUs idle.
    spare_rows: tuple[int, ...] = ()

    def lone_threads_of(self, number: int) -> int:
        """Number of threads of the replica `number` while the others have no work."""
        return self.threads if number else max(self.threads, self.lone_threads)

    @property
    def lone_rows(self) -> int:
        """Number of rows that the first replica decodes before another one begins.

        All threads together are of use to a few rows. More rows are decoded sooner by several replicas.
        """
        return self.lone_threads // 2


def divide_cpus(models: Collection[str], cpus: int | None = None) -> dict[str, int]:
    """The number of CPUs of each model: equal parts, and at least one. The first names get what is left over."""
    parts = divided(cpus or available_cpus(), max(1, len(models)))
    return {name: max(1, part) for name, part in zip(sorted(models), parts, strict=False)}


def place_replicas(
    parameters: int,
    device: Device,
    cpus: int | None = None,
    all_cpus: int = 0,
    *,
    rows_of: Callable[[int], int],
    beam_limit: int,
    rows: int | None = None,
    replicas: int | None = None,
    threads: int | None = None,
) -> Placement:
    """The replicas that are asked for; or by default, the replicas that suit the size of the model.

    The model has `cpus`, by default those that this process may use, and all models together have `all_cpus`, if these
    are more. `rows_of` returns the number of rows of so many replicas together, and a replica must have the rows for a
    beam of `beam_limit`. What may be asked for: the rows of all replicas, the replicas, and the threads of each.

    Raises:
        SettingsError: several replicas are asked for on CUDA.
    """
    cpus = cpus or available_cpus()
    if device == "cuda" and (replicas or 1) > 1:
        raise SettingsError(f"--replicas is {replicas}, and on cuda there is one: a step takes the whole GPU")
    if replicas or threads or device == "cuda" or parameters >= _LARGE_MODEL:
        number = replicas or 1
        return Placement(divided(rows_of(number), number), threads or max(1, cpus // number))
    place = _place_small if parameters < _SMALL_MODEL else partial(_place_larger, rows=rows)
    placed, with_all = (place(number, rows_of, beam_limit) for number in (cpus, max(cpus, all_cpus)))
    if placed.threads > 1 or with_all.threads > 1:
        return placed
    return replace(placed, spare_rows=with_all.rows[len(placed.rows) :])


def _place_small(cpus: int, rows_of: Callable[[int], int], beam_limit: int) -> Placement:
    number = min(cpus, _MOST_SMALL_REPLICAS)
    while number > 1 and rows_of(number) // number < beam_limit:
        number -= 1
    return Placement(divided(rows_of(number), number), threads=1 if number > 1 else cpus)


def _place_larger(cpus: int, rows_of: Callable[[int], int], beam_limit: int, rows: int | None) -> Placement:
    most = rows or max(rows_of(1), _ROWS * cpus)
    if cpus == 1 or cpus > _MOST_LARGER_REPLICAS or most // cpus < beam_limit:
        return Placement(divided(rows_of(1), 1), cpus)
    return Placement(divided(most, cpus), threads=1, lone_threads=cpus)


def divided(whole: int, number: int) -> tuple[int, ...]:
    """Divide a count into `number` equal parts. The first parts get one more each of what is left over."""
    each, more = divmod(whole, number)
    return tuple(each + (place < more) for place in range(number))
