"""Weights of PyTorch's own Transformer modules, under the names that Translane's `Transformer` gives them.

The functions that end in ``_weights`` are pure: they take the state dict of one module, and return tensors on the same
memory. Nothing is copied but missing biases, which are zero. Shapes: M model size, F inner size of the feed-forward
networks.

https://docs.pytorch.org/docs/stable/generated/torch.nn.Transformer.html
https://docs.pytorch.org/docs/stable/generated/torch.nn.MultiheadAttention.html
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from translane_export.errors import ExportError
from translane_export.model import TransformerConfig
from translane_export.model.config import Activation
from translane_export.model.layers import ACTIVATIONS
from translane_server.core.terminal import printable

Weights = dict[str, Tensor]
State = Mapping[str, Tensor]

_PROJECTIONS = ("q_proj", "k_proj", "v_proj")
_UNSUPPORTED = {"bias_k": "add_bias_kv", "bias_v": "add_bias_kv"}
_LAYER = re.compile(r"layers\.(\d+)\.")
_STACKS = ("encoder", "decoder")


def attention_weights(state: State, module: str = "nn.MultiheadAttention") -> Weights:
    """Return the weights of an `nn.MultiheadAttention` under the names of Translane's `MultiHeadAttention`.

    Args:
        state: ``in_proj_weight`` [3·M, M], or ``q_proj_weight``, ``k_proj_weight`` and ``v_proj_weight``, which the
            module has where keys or values are of another size than M; ``in_proj_bias`` [3·M] or none; ``out_proj``.
        module: what errors call the module.

    Raises:
        ExportError: a tensor is missing, has no place, or has no three equal parts. ``bias_k`` and ``bias_v``
            (``add_bias_kv=True``) have no place: they add a key and a value that belong to no token.
    """
    _check_places(
        state,
        {"in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias", *(f"{p}_weight" for p in _PROJECTIONS)},
        module,
    )
    weights: Weights = {}
    if "in_proj_weight" in state:
        weights |= _thirds(state["in_proj_weight"], "weight", f"{module}.in_proj_weight")
    else:
        weights |= {f"{part}.weight": _take(state, f"{part}_weight", module) for part in _PROJECTIONS}
    if "in_proj_bias" in state:
        weights |= _thirds(state["in_proj_bias"], "bias", f"{module}.in_proj_bias")
    return weights | _linear(state, "out_proj", "out_proj", module)


def encoder_layer_weights(state: State, module: str = "nn.TransformerEncoderLayer") -> Weights:
    """Return the weights of an `nn.TransformerEncoderLayer` under the names of Translane's `EncoderLayer`.

    Args:
        state: ``self_attn`` (see `attention_weights`), ``linear1`` [F, M], ``linear2`` [M, F], ``norm1``, ``norm2``.
        module: what errors call the module.

    Raises:
        ExportError: a tensor is missing or has no place.
    """
    return _layer_weights(state, {"self_attn": "self_attention"}, module)


def decoder_layer_weights(state: State, module: str = "nn.TransformerDecoderLayer") -> Weights:
    """Return the weights of an `nn.TransformerDecoderLayer` under the names of Translane's `DecoderLayer`.

    Args:
        state: as `encoder_layer_weights` takes it, with ``multihead_attn`` and ``norm3``.
        module: what errors call the module.

    Raises:
        ExportError: a tensor is missing or has no place.
    """
    return _layer_weights(state, {"self_attn": "self_attention", "multihead_attn": "cross_attention"}, module)


def transformer_weights(state: State) -> Weights:
    """Return the weights of an `nn.Transformer` under the names of Translane's `Transformer`.

    Args:
        state: ``encoder.layers.N``, ``decoder.layers.N``, and ``encoder.norm``, ``decoder.norm`` or neither.

    Raises:
        ExportError: a tensor is missing or has no place, a stack has no layers, or layers are not numbered in a row.
    """
    weights: Weights = {}
    for stack, read in zip(_STACKS, (encoder_layer_weights, decoder_layer_weights), strict=True):
        for number in range(_count_layers(state, stack)):
            name = f"{stack}.layers.{number}"
            weights |= _named(name, read(_part(state, name), name))
        if f"{stack}.norm.weight" in state:
            weights |= _norm(state, f"{stack}.norm", f"{stack}.final_norm", "nn.Transformer")
    if left := sorted(name for name in state if not re.match(r"(encoder|decoder)\.(layers\.\d+|norm)\.", name)):
        raise ExportError(f"nn.Transformer: the tensor {printable(left[0], 200)} has no place in the model")
    return weights


def transformer_fields(state: State, *, heads: int, norm_first: bool) -> dict[str, Any]:
    """Return what the state dict of an `nn.Transformer` says of its `TransformerConfig`.

    Args:
        state: see `transformer_weights`.
        heads: number of attention heads, which no shape says.
        norm_first: whether norms stand before the sublayers, which no shape says either.

    Returns:
        The fields d_model, encoder_layers, decoder_layers, heads, ffn_size, norm, biases, and final_norm where a norm
        after each stack is not what ``norm`` implies.

    Raises:
        ExportError: see `transformer_weights`; the model size is no multiple of ``heads``; or one stack has a norm at
            its end and the other has none.
    """
    first = _take(state, "encoder.layers.0.linear1.weight", "nn.Transformer")  # [F, M]
    ffn_size, d_model = _shape(first, 2, "encoder.layers.0.linear1.weight")
    if heads < 1 or d_model % heads:
        raise ExportError(f"nn.Transformer: its model size is {d_model}, which {heads} heads do not divide")
    ends = {f"{stack}.norm.weight" in state for stack in _STACKS}
    if len(ends) > 1:
        raise ExportError("nn.Transformer: only one of encoder.norm and decoder.norm is there")
    return {
        "d_model": d_model,
        "encoder_layers": _count_layers(state, "encoder"),
        "decoder_layers": _count_layers(state, "decoder"),
        "heads": heads,
        "ffn_size": ffn_size,
        "biases": any(name.endswith("bias") and ".norm" not in name for name in state),
        **_norm_fields(norm_first, ends.pop()),
    }


def with_biases(weights: Weights, config: TransformerConfig) -> Weights:
    """Return the weights with a bias of zeros for every projection that has none, where the config has biases."""
    if not config.biases:
        return weights
    missing = {
        f"{name.removesuffix('weight')}bias": torch.zeros(len(weight))
        for name, weight in weights.items()
        if weight.ndim == 2 and name.endswith("weight") and ".embedding." not in name
    }
    return missing | weights


def _layer_weights(state: State, attentions: Mapping[str, str], module: str) -> Weights:
    names = list(attentions.values())
    norms = {f"norm{number}": f"{name}_residual.norm" for number, name in enumerate([*names, "feed_forward"], start=1)}
    linears = {"linear1": "feed_forward.up_proj", "linear2": "feed_forward.down_proj"}
    rest = {name: tensor for name, tensor in state.items() if name.split(".")[0] not in attentions}
    _check_places(rest, {f"{part}.{kind}" for part in (*norms, *linears) for kind in ("weight", "bias")}, module)
    weights: Weights = {}
    for theirs, ours in attentions.items():
        weights |= _named(ours, attention_weights(_part(state, theirs), f"{module}.{theirs}"))
    for theirs, ours in linears.items():
        weights |= _linear(state, theirs, ours, module)
    for theirs, ours in norms.items():
        weights |= _norm(state, theirs, ours, module)
    return weights


def _linear(state: State, theirs: str, ours: str, module: str) -> Weights:
    weights = {f"{ours}.weight": _take(state, f"{theirs}.weight", module)}
    return weights | ({f"{ours}.bias": state[f"{theirs}.bias"]} if f"{theirs}.bias" in state else {})


def _norm(state: State, theirs: str, ours: str, module: str) -> Weights:
    """A norm without a bias is one whose bias is zero."""
    weight = _take(state, f"{theirs}.weight", module)
    bias = state.get(f"{theirs}.bias")
    return {f"{ours}.weight": weight, f"{ours}.bias": torch.zeros_like(weight) if bias is None else bias}


def _thirds(packed: Tensor, kind: str, name: str) -> Weights:
    if packed.ndim != (2 if kind == "weight" else 1) or not len(packed) or len(packed) % 3:
        raise ExportError(f"{name} is {list(packed.shape)}, and queries, keys and values are a third of it each")
    return {f"{part}.{kind}": third for part, third in zip(_PROJECTIONS, packed.chunk(3), strict=True)}


def _count_layers(state: State, stack: str) -> int:
    prefix = f"{stack}."
    numbers = {
        int(match[1])
        for name in state
        if name.startswith(prefix) and (match := _LAYER.match(name, len(prefix))) and len(match[1]) < 10
    }
    if not numbers or max(numbers) != len(numbers) - 1:
        raise ExportError(f"nn.Transformer: its {stack} has {len(numbers)} layers that are not numbered from 0 on")
    return len(numbers)


def _norm_fields(norm_first: bool, at_the_end: bool) -> dict[str, Any]:
    fields = {"norm": "pre" if norm_first else "post"}
    if norm_first == at_the_end:
        return fields
    return {**fields, "final_norm": at_the_end}


def _check_places(state: State, known: set[str], module: str) -> None:
    for name in sorted(state.keys() - known):
        if option := _UNSUPPORTED.get(name):
            raise ExportError(f"{module} has {name} ({option}=True), which is not supported")
        raise ExportError(f"{module}: the tensor {printable(name, 200)} has no place in the model")


def _take(state: State, name: str, module: str) -> Tensor:
    if name not in state:
        raise ExportError(f"{module}: the tensor {name} is missing")
    return state[name]


def _shape(tensor: Tensor, dimensions: int, name: str) -> tuple[int, ...]:
    if tensor.ndim != dimensions:
        raise ExportError(f"nn.Transformer: {name} is {list(tensor.shape)}, and it should have {dimensions} dimensions")
    return tuple(tensor.shape)


def _part(state: State, module: str) -> Weights:
    """The state dict of one module within another."""
    return {name.removeprefix(f"{module}."): each for name, each in state.items() if name.startswith(f"{module}.")}


def _named(module: str, weights: Weights) -> Weights:
    return {f"{module}.{name}": tensor for name, tensor in weights.items()}


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
