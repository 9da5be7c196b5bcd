"""The PyTorch model of a checkpoint, on the checkpoint's own memory."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from translane_export.core.checkpoint import Checkpoint
from translane_export.core.errors import ExportError
from translane_export.core.file_readers import as_linear
from translane_export.model import Transformer
from translane_server.core.errors import is_about_memory

_FILLS = ("fill_", "normal_", "uniform_")  # of tensors: functions of nn.init that are not seen call them


def build_model(checkpoint: Checkpoint) -> Transformer:
    """Return the checkpoint's model, on the checkpoint's own tensors.

    Raises:
        ExportError: its weights do not fit its configuration.
    """
    config = checkpoint.config
    try:
        # Sizes are compared without memory first: those of the configuration may be any.
        with torch.device("meta"):
            outline = Transformer(config)
        state_dict = _parameters(checkpoint.state_dict, outline.state_dict(keep_vars=True))
        outline.load_state_dict(state_dict, assign=True)
        del outline
        with _Unset():
            model = Transformer(config)
        model.load_state_dict(state_dict, assign=True)
    except RuntimeError as error:  # its message is one problem per line, after a headline
        if is_about_memory(error):
            raise MemoryError from error
        problem = (str(error).splitlines()[1:] or [str(error)])[0].strip().rstrip(".")
        raise ExportError(f"the checkpoint's weights do not fit its configuration: {problem}") from None
    return model.eval()


def _parameters(stored: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The stored tensors as parameters and buffers in float32; tensors that are one stay one."""
    parameters: dict[tuple[int, torch.Size, torch.Size], nn.Parameter] = {}
    found: dict[str, torch.Tensor] = {}
    for name, tensor in stored.items():
        weight = as_linear(tensor.float(), expected[name].shape if name in expected else tensor.shape)
        if name in expected and not isinstance(expected[name], nn.Parameter):
            found[name] = weight
            continue
        key = (weight.data_ptr(), weight.shape, torch.Size(weight.stride()))
        found[name] = parameters.setdefault(key, nn.Parameter(weight, requires_grad=False))
    return found


class _Unset(TorchFunctionMode):
    """Leaves new parameters as they come from the system, which takes no memory before something is written."""

    def __torch_function__(
        self, function: Any, _types: Any, arguments: tuple[Any, ...] = (), keywords: Mapping[str, Any] | None = None
    ) -> Any:
        """Skip what fills a parameter with numbers."""
        if function.__name__ in _FILLS or getattr(function, "__module__", "") == nn.init.__name__:
            return arguments[0] if arguments else (keywords or {})["tensor"]
        return function(*arguments, **(keywords or {}))


def release_memory() -> None:
    """Collect what nothing refers to, and let the allocator keep none of it, where it can be asked to (glibc)."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
