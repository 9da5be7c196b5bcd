"""A model that several processes train: its gradients, weights and buffers are the same in all of them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from torch import Tensor, nn

from translane_export.train.parallel import Parallel


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


def share_model(model: nn.Module, parallel: Parallel) -> None:
    """Give all processes the weights and buffers that the model has on process 0."""
    for tensor in (*model.parameters(), *model.buffers()):
        parallel.share_tensor(tensor.detach())


def agree_on_buffers(model: nn.Module, parallel: Parallel) -> None:
    """Make the model's buffers, such as running statistics, those of process 0.

    Batch norms find their statistics over the whole batch, so the buffers differ by rounding alone.
    """
    for buffer in model.buffers():
        parallel.share_tensor(buffer)
