"""How far rounding alone moves what a model computes.

Two programs that compute the same in another order round differently, and a model may make much of that or little:
activations that are large inside a layer, or cancel each other, lose digits of everything after them. So the model is
run with every operation's inputs changed in their last digit at random, as in Monte Carlo arithmetic (Parker 1997), and
what comes out shows how exact any computation in that type can be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode


class RoundedInputs(TorchFunctionMode):
    """Changes each number that goes into an operation by about a unit in the last place of `dtype`, weights apart."""

    def __init__(self, dtype: torch.dtype, seed: int) -> None:
        super().__init__()
        self._unit = torch.finfo(dtype).eps
        self._generator = torch.Generator().manual_seed(seed)

    def __torch_function__(
        self,
        function: Callable[..., Any],
        _types: Any,
        arguments: tuple[Any, ...] = (),
        keywords: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call `function` with changed inputs."""
        if function.__name__ != "__get__":  # looking up a shape computes nothing
            arguments = tuple(self._change(argument) for argument in arguments)
        return function(*arguments, **(keywords or {}))

    def _change(self, argument: Any) -> Any:
        if not isinstance(argument, Tensor) or isinstance(argument, nn.Parameter) or not argument.is_floating_point():
            return argument
        return argument * (1 + self._unit * torch.randn(argument.shape, generator=self._generator))
