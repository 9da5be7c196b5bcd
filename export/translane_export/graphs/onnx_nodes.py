"""Nodes of an ONNX graph that PyTorch has no operator for, written while ``torch.onnx.export`` captures the graph.

A node here computes nothing: only its outputs' types and shapes are known, as far as the exporter asks for them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from translane_export.model.attention import MultiHeadAttention
from translane_export.model.positions import Rotary

_COSINES, _ATTENTION_BIAS = 7, 10  # which inputs of GroupQueryAttention they are
_WEIGHTS = 3  # which output they are
_AFTER_SOFTMAX = 2  # its attribute qk_output: the weights


class HeadForm(NamedTuple):
    """What the operators have to know of an attention, the projections apart.

    ``heads`` of queries share the ``kv_heads`` of keys and values, all of them ``size`` numbers. Scores are multiplied
    with ``scale``; ``one_in_denominator`` is softmax₁. ``rotary`` turns queries and keys, where there is one.
    """

    heads: int
    kv_heads: int
    size: int
    scale: float
    one_in_denominator: bool
    rotary: Rotary | None

    @classmethod
    def of(cls, attention: MultiHeadAttention) -> HeadForm:
        """Return the form of an attention whose heads have one size (`head_padding`)."""
        assert attention.head_size == attention.value_size
        return cls(
            attention.heads,
            attention.kv_heads,
            attention.head_size,
            attention.scale,
            attention.one_in_denominator,
            attention.rotary,
        )

    @property
    def width(self) -> int:
        """Numbers of all heads of a query together."""
        return self.heads * self.size

    @property
    def sharing(self) -> int:
        """How many heads of queries share a head of keys and values."""
        return self.heads // self.kv_heads

    @property
    def is_plain(self) -> bool:
        """Whether this is the paper's attention, but for the scale."""
        return self.heads == self.kv_heads and not self.one_in_denominator and self.rotary is None

    @property
    def unusual_scale(self) -> float | None:
        """The scale, unless it is 1/√D."""
        return None if math.isclose(self.scale, self.size**-0.5, rel_tol=1e-12) else self.scale


def emit(
    operator: str,
    inputs: tuple[Tensor | None, ...],
    dtype: torch.dtype,
    shape: Any,
    attributes: dict[str, Any] | None = None,
) -> Tensor:
    """Write a node with one output; ``operator`` is "Gemm", or "com.microsoft::QuickGelu"."""
    return emit_all(operator, inputs, [dtype], [shape], attributes)[0]


def emit_all(
    operator: str,
    inputs: tuple[Tensor | None, ...],
    dtypes: list[torch.dtype],
    shapes: list[Any],
    attributes: dict[str, Any] | None = None,
) -> tuple[Tensor, ...]:
    """Write a node with several outputs."""
    domain, _, name = operator.rpartition("::")
    version = 1 if domain else None
    written = torch.onnx.ops.symbolic_multi_out(
        f"{domain}::{name}", inputs, attributes or {}, dtypes=dtypes, shapes=shapes, version=version
    )
    return tuple(written)


def multiply(x: Tensor, weight: Tensor) -> Tensor:
    """Write the product of ``x`` [B, M] with a projection's weight as PyTorch stores it [N, M]: -> [B, N]."""
    return emit("Gemm", (x, weight), x.dtype, (x.shape[0], weight.shape[0]), {"transB": 1})


def group_query_attention(
    inputs: tuple[Tensor | None, ...],
    form: HeadForm,
    shapes: list[Any],
    dtype: torch.dtype,
    *,
    bias: Tensor | None = None,
    causal: bool = True,
    window: int | None = None,
) -> tuple[Tensor, ...]:
    """Write a GroupQueryAttention node with as many outputs as there are ``shapes``; the fourth are the weights.

    A causal query sees no further back than the last ``window`` keys, where one is given.
    """
    attributes: dict[str, Any] = {"num_heads": form.heads, "kv_num_heads": form.kv_heads}
    if not causal:
        attributes["causal"] = 0
    if form.unusual_scale is not None:
        attributes["scale"] = form.unusual_scale
    if form.one_in_denominator:
        attributes["smooth_softmax"] = 1
    if window is not None:
        attributes["local_window_size"] = window
    if len(shapes) > _WEIGHTS:
        attributes["qk_output"] = _AFTER_SOFTMAX
    if form.rotary is not None:
        attributes["do_rotary"] = 1
        inputs = (*inputs, *[None] * (_COSINES - len(inputs)), form.rotary.cosines, form.rotary.sines)
    if bias is not None:
        inputs = (*inputs, *[None] * (_ATTENTION_BIAS - len(inputs)), bias)
    return emit_all("com.microsoft::GroupQueryAttention", inputs, [dtype] * len(shapes), shapes, attributes)


def scalar(size: int | torch.SymInt) -> Tensor:
    """Return a size as the graph's int32 scalar, computed from the shape at run time."""
    return torch.scalar_tensor(size, dtype=torch.int32)  # type: ignore[arg-type]  # SymInt is meant


class RuntimeOperators(TorchFunctionMode):
    """Has the model's own layers write operators that ONNX Runtime has, where PyTorch's exporter would choose others.

    A projection is a Gemm without a bias, too. RMSNorm is an operator of ONNX Runtime in its own right, outside the
    standard's versions up to 22:
    https://github.com/microsoft/onnxruntime/blob/main/onnxruntime/core/graph/contrib_ops/contrib_defs.cc
    For CUDA, an activation is one kernel, but for gelu without a bias before it: of these, that with a bias alone has a
    kernel for bfloat16.
    """

    def __init__(self, graph: nn.Module, *, for_cuda: bool) -> None:
        super().__init__()
        self._written: dict[Any, Callable[..., Tensor]] = {functional.linear: _linear, functional.rms_norm: _rms_norm}
        self._written[functional.batch_norm] = _batch_norm
        if for_cuda:
            biased = any(name.endswith("up_proj.bias") for name, _ in graph.named_parameters())
            self._written |= {functional.gelu: partial(_gelu, biased=biased), functional.silu: _silu}

    def __torch_function__(
        self, function: Any, _types: Any, arguments: tuple[Any, ...] = (), keywords: Mapping[str, Any] | None = None
    ) -> Any:
        """Write the operator of a function that has one here."""
        return self._written.get(function, function)(*arguments, **(keywords or {}))


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return multiply(x, weight) if bias is None else functional.linear(x, weight, bias)


def _rms_norm(x: Tensor, _shape: Any, weight: Tensor, eps: float) -> Tensor:
    attributes = {"axis": -1, "epsilon": eps, "stash_type": 1}
    return emit("SimplifiedLayerNormalization", (x, weight), x.dtype, x.shape, attributes)


def _batch_norm(
    x: Tensor, mean: Tensor, variance: Tensor, weight: Tensor, bias: Tensor, *, training: bool, eps: float, **_: Any
) -> Tensor:
    assert not training
    return emit("BatchNormalization", (x, weight, bias, mean, variance), x.dtype, x.shape, {"epsilon": eps})


def _gelu(x: Tensor, approximate: str = "none", *, biased: bool) -> Tensor:
    if approximate == "tanh":
        return emit("com.microsoft::FastGelu", (x,), x.dtype, x.shape)
    return emit("com.microsoft::Gelu", (x,), x.dtype, x.shape) if biased else functional.gelu(x)


def _silu(x: Tensor, *, inplace: bool) -> Tensor:
    assert not inplace
    return emit("com.microsoft::QuickGelu", (x,), x.dtype, x.shape, {"alpha": 1.0})
