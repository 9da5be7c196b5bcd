"""Which tensors of a checkpoint can be weights: dense floating-point numbers that the file really holds."""

from __future__ import annotations

import torch
from torch import Tensor

from translane_export.core.errors import ExportError

_TYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def check_weight(tensor: Tensor, where: str) -> None:
    """Refuse a tensor that no weight is: complex numbers, truth values, numbers of 8 bits, tensors without numbers.

    Numbers of 8 bits mean something only with scales that lie elsewhere.
    """
    if kind := _unlike_weights(tensor):
        raise ExportError(f"{where} is {kind}, and weights are dense tensors of float32, float16, bfloat16 or float64")


def as_linear(tensor: Tensor, shape: torch.Size) -> Tensor:
    """Return the weight of a 1×1 convolution [out, in, 1] as the linear layer's [out, in], on the same memory.

    Both compute the same at each position. A tensor that does not become `shape` is returned as it is.
    """
    return tensor.squeeze(-1) if len(shape) == 2 and tensor.shape == (*shape, 1) else tensor


def _unlike_weights(tensor: Tensor) -> str:
    """What is different about a tensor that is no weight; empty for others. Looks at no numbers."""
    if tensor.is_meta:
        return "empty (on the device meta)"
    if tensor.is_nested:
        return "a nested tensor"
    if tensor.layout is not torch.strided:
        return f"sparse ({_name(tensor.layout)})"
    if tensor.is_quantized:
        return f"quantized ({_name(tensor.dtype)})"
    if tensor.device.type != "cpu":
        return f"on the device {tensor.device.type}"
    if tensor.dtype not in _TYPES:
        return _name(tensor.dtype)
    if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        return f"{list(tensor.shape)} by repeating fewer numbers"
    return ""


def _name(kind: object) -> str:
    return str(kind).removeprefix("torch.")
