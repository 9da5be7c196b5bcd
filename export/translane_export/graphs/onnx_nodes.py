"""Nodes of an ONNX graph that PyTorch has no operator for, written while ``torch.onnx.export`` captures the graph.

A node here computes nothing: only its outputs' types and shapes are known, as far as the exporter asks for them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from translane_export.model.residual import Norm

_ATTENTION_BIAS = 10  # which input of GroupQueryAttention it is


def emit(
    operator: str,
    inputs: tuple[Tensor | None, ...],
    dtype: torch.dtype,
    shape: Any,
    attributes: dict[str, Any] | None = None,
) -> Tensor:
    """Write a node with one output; ``operator`` is "Gemm", or "com.microsoft::QuickGelu"."""
    domain, _, name = operator.rpartition("::")
    (output,) = torch.onnx.ops.symbolic_multi_out(
        f"{domain}::{name}",
        inputs,
        attributes or {},
        dtypes=[dtype],
        shapes=[shape],
        version=1 if domain else None,
    )
    return output


def multiply(layer: nn.Linear, x: Tensor) -> Tensor:
    """Apply a projection to ``x`` [B, M] and leave its bias out: a Gemm on the weight as PyTorch stores it."""
    if torch.onnx.is_in_onnx_export():
        return emit("Gemm", (x, layer.weight), x.dtype, (x.shape[0], layer.out_features), {"transB": 1})
    return nn.functional.linear(x, layer.weight)


def group_query_attention(
    inputs: tuple[Tensor | None, ...],
    heads: int,
    shapes: list[Any],
    dtype: torch.dtype,
    *,
    bias: Tensor | None = None,
    scaled: bool = True,
    causal: bool = True,
) -> tuple[Tensor, ...]:
    """Write a GroupQueryAttention node with as many outputs as there are ``shapes``."""
    attributes: dict[str, Any] = {"num_heads": heads, "kv_num_heads": heads}
    if not causal:
        attributes["causal"] = 0
    if not scaled:
        attributes["scale"] = 1.0
    if bias is not None:
        inputs = (*inputs, *[None] * (_ATTENTION_BIAS - len(inputs)), bias)
    outputs = torch.onnx.ops.symbolic_multi_out(
        "com.microsoft::GroupQueryAttention", inputs, attributes, dtypes=[dtype] * len(shapes), shapes=shapes, version=1
    )
    return tuple(outputs)


def scalar(size: int | torch.SymInt) -> Tensor:
    """Return a size as the graph's int32 scalar, computed from the shape at run time."""
    return torch.scalar_tensor(size, dtype=torch.int32)  # type: ignore[arg-type]  # SymInt is meant


def epsilon(norm: Norm) -> float:
    """Return what a norm adds to the variance."""
    assert norm.eps is not None  # RMSNorm's own default depends on the type of its input
    return norm.eps
