"""Where and in what number format training computes."""

from __future__ import annotations

from typing import Literal

import torch

from translane_server.core.errors import SettingsError

Precision = Literal["auto", "bf16", "fp32"]


def choose_device(name: Literal["auto", "cpu", "cuda"], number: int = 0) -> torch.device:
    """Return the device; "auto" takes a GPU where there is one.

    Args:
        name: the kind of device that is asked for.
        number: which GPU, where this is one of several processes of a machine. It becomes PyTorch's default.

    Raises:
        SettingsError: a GPU that is asked for is missing.
    """
    if name == "cuda" and not torch.cuda.is_available():
        raise SettingsError("--device: cuda is asked for, but PyTorch finds no GPU")
    if name == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    if number >= torch.cuda.device_count():
        raise SettingsError(
            f"--device: process {number} of this machine has no GPU, as PyTorch finds {torch.cuda.device_count()};"
            " start fewer processes"
        )
    torch.cuda.set_device(number)
    return torch.device("cuda", number)


def uses_bf16(precision: Precision, device: torch.device) -> bool:
    """Say whether to autocast to bfloat16; "auto" asks whether the hardware multiplies it natively."""
    if precision != "auto":
        return precision == "bf16"
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))
