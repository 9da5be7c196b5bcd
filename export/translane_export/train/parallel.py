"""Several processes that train one model, as torchrun starts them; or one process alone.

Each process computes its share of a batch, and all make the same update, with the sum of their gradients
(https://docs.pytorch.org/docs/stable/distributed.html). Process 0 validates, saves and reports; the others wait.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from translane_export.train.errors import TrainError

# Validation on a large text takes long, and the other processes wait for it. A process that ends is noticed at once.
_PATIENCE = timedelta(days=1)
_JOINING = timedelta(minutes=10)


class Parallel:
    """The processes that take part in training: one alone. All call the same methods in the same order.

    ``local_rank`` is the number of this process on its machine, which is also the number of its GPU.
    """

    rank = local_rank = 0
    size = 1

    def sum(self, tensor: Tensor) -> None:
        """Replace a tensor, of one shape on all processes, with the sum of all. Raises TrainError."""

    def share(self, numbers: Sequence[float]) -> list[float]:
        """Return the numbers of process 0, as many as are given. Raises TrainError."""
        return list(numbers)

    def share_tensors(self, tensors: Iterable[Tensor]) -> None:
        """Replace tensors, of the same shapes on all processes, with those of process 0. Raises TrainError."""

    def barrier(self) -> None:
        """Wait until all processes are here. Raises TrainError when one of them has ended."""


class Processes(Parallel):
    """Processes of torch.distributed: tensors on a CPU travel by gloo, those on GPUs by NCCL."""

    def __init__(self, rank: int, local_rank: int, size: int) -> None:
        """All processes call it at the same time, once torch.distributed has joined them."""
        self.rank, self.local_rank, self.size = rank, local_rank, size
        self._group = dist.new_group(timeout=_PATIENCE)

    def sum(self, tensor: Tensor) -> None:
        with _others_may_end():
            dist.all_reduce(tensor, group=self._group)

    def share(self, numbers: Sequence[float]) -> list[float]:
        shared = torch.tensor(numbers, dtype=torch.float64)
        self.share_tensors([shared])
        return shared.tolist()

    def share_tensors(self, tensors: Iterable[Tensor]) -> None:
        with _others_may_end():
            for tensor in tensors:
                dist.broadcast(tensor.detach(), src=0, group=self._group)

    def barrier(self) -> None:
        self.sum(torch.zeros(1))  # dist.barrier would wait on the GPUs


@contextmanager
def joined(environ: Mapping[str, str]) -> Iterator[Parallel]:
    """Take part in the processes that torchrun has started, while the `with` block runs; alone if it has not.

    ``environ`` is the environment of the process, with the variables that torchrun sets:
    https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables.

    Raises:
        TrainError: a variable is missing or makes no sense, or the processes do not find each other.
    """
    if not {"RANK", "WORLD_SIZE"} & environ.keys():
        yield Parallel()
        return
    try:
        local_rank = int(environ["LOCAL_RANK"])
        dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", timeout=_JOINING)
        processes = Processes(dist.get_rank(), local_rank, dist.get_world_size())
    except (RuntimeError, ValueError, OSError, KeyError) as error:
        raise TrainError(f"the processes do not find each other ({_first_line(error)})") from None
    yield processes
    # After an error the others are gone, or wait for something that never comes; then the process just ends.
    processes.barrier()
    dist.destroy_process_group()


def seed_others(seed: int, step: int, parallel: Parallel) -> None:
    """Give all processes but process 0 random numbers of their own from `step` on.

    A state to resume from holds those of process 0 alone. So the others begin anew wherever a run can resume.
    """
    if parallel.rank:
        torch.manual_seed(int(np.random.SeedSequence((seed, step, parallel.rank)).generate_state(1, np.uint64)[0]))


@contextmanager
def _others_may_end() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise _another_has_ended(error) from None


@contextmanager
def batch_norms_may_fail() -> Iterator[None]:
    """Say that another process has ended where a batch norm, which adds up over processes, finds it gone."""
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, dist.DistError) and "gloo" not in str(error):
            raise
        raise _another_has_ended(error) from None


def _another_has_ended(error: Exception) -> TrainError:
    return TrainError(f"another process of the run has ended ({_first_line(error)})")


def _first_line(error: Exception) -> str:
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return line.split("] ")[-1].partition(". ")[0]  # without the place in PyTorch's code, and without advice


class SharedGradients:
    """The gradients of all parameters as one tensor, which a single message sums over the processes."""

    def __init__(self, parameters: Sequence[nn.Parameter], parallel: Parallel) -> None:
        self._parallel = parallel
        sizes = [parameter.numel() for parameter in parameters]
        # One number more: the loss, which every process has to know.
        self._flat = parameters[0].new_zeros(sum(sizes) + 1).detach()
        ends = list(itertools.accumulate(sizes))
        self._views = [
            self._flat[end - size : end].view_as(parameter)
            for end, size, parameter in zip(ends, sizes, parameters, strict=True)
        ]
        self._parameters = parameters

    def clear(self) -> None:
        """Set all gradients to zero. Backward passes add to them where they are."""
        self._flat.zero_()
        for parameter, view in zip(self._parameters, self._views, strict=True):
            parameter.grad = view

    def sum(self, loss: Tensor) -> Tensor:
        """Sum the gradients and the `loss`, a scalar, over all processes; return the sum of the losses."""
        self._flat[-1] = loss
        self._parallel.sum(self._flat)
        return self._flat[-1].clone()
