"""Where and in what number format training computes."""

from __future__ import annotations

from typing import Literal

import torch

from translane_server.errors import SettingsError

Precision = Literal["auto", "bf16", "fp32"]


def choose_device(name: Literal["auto", "cpu", "cuda"]) -> torch.device:
    """Return the device; "auto" takes a GPU where there is one. Raises SettingsError when one asked for is missing."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cuda" and not torch.cuda.is_available():
        raise SettingsError("--device: cuda is asked for, but PyTorch finds no GPU")
    return torch.device(name)


def uses_bf16(precision: Precision, device: torch.device) -> bool:
    """Say whether to autocast to bfloat16; "auto" asks whether the hardware multiplies it natively."""
    if precision != "auto":
        return precision == "bf16"
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))
