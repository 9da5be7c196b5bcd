"""What an `nn.Transformer` in memory says of itself: its state dict's shapes, and the settings that no shape shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from translane_export.errors import ExportError
from translane_export.model.config import Activation
from translane_export.model.layers import ACTIVATIONS
from translane_export.sources.torch_modules import transformer_fields


def module_fields(transformer: nn.Transformer) -> dict[str, Any]:
    """Return what an `nn.Transformer` says of its `TransformerConfig`: `transformer_fields` and what no tensor says.

    Those are the fields activation, layer_norm_eps and dropout.

    Raises:
        ExportError: a stack or layer is of a class of its own, layers differ, the activation is none that Translane
            has, or attention has ``add_zero_attn``.
    """
    stacks = (("encoder", nn.TransformerEncoderLayer), ("decoder", nn.TransformerDecoderLayer))
    found: list[tuple[Any, ...]] = []
    for stack, kind in stacks:
        for number, layer in enumerate(getattr(getattr(transformer, stack), "layers", ())):
            name = f"{stack}.layers.{number}"
            if type(layer) is not kind:
                found_kind = type(layer).__name__
                raise ExportError(f"{name} is of the class {found_kind}, and only an nn.{kind.__name__} is read")
            for part, attention in layer.named_modules():
                if isinstance(attention, nn.MultiheadAttention) and attention.add_zero_attn:
                    raise ExportError(f"{name}.{part} has add_zero_attn, which is not supported")
            activation = _activation(layer.activation, name)
            found.append((layer.self_attn.num_heads, layer.norm_first, activation, layer.norm1.eps, layer.dropout1.p))
    if not found:
        raise ExportError("nn.Transformer: it has no layers")
    if len(set(found)) > 1:
        raise ExportError("nn.Transformer: its layers differ in heads, norm_first, activation, epsilon or dropout")
    heads, norm_first, activation, epsilon, dropout = found[0]
    return {
        **transformer_fields(transformer.state_dict(), heads=heads, norm_first=norm_first),
        "activation": activation,
        "layer_norm_eps": epsilon,
        "dropout": dropout,
    }


def _activation(function: Callable[[Tensor], Tensor], layer: str) -> Activation:
    """The activation that gives the same numbers: it may be a function, a module or a lambda."""
    inputs = torch.linspace(-6, 6, 241)
    with torch.inference_mode():
        outputs = function(inputs.clone())
        for name, ours in ACTIVATIONS.items():
            if torch.allclose(outputs, ours(inputs), rtol=0, atol=1e-6):
                return name
    raise ExportError(f"{layer}: its activation is none of {', '.join(ACTIVATIONS)}")
