"""Gives attention heads of any size the sizes that ONNX Runtime's fused attention takes, without changing what they do.

The operator wants keys and values of one size, in multiples of 8, or of 16 where it turns them by rotary positions, and
it turns halves rather than neighbours. Numbers that are added are zero, so that no product sees them.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from translane_export.model import Transformer, TransformerConfig
from translane_export.model.attention import MultiHeadAttention

_MULTIPLE = 8
_PARTS = ("q_proj", "k_proj", "v_proj", "out_proj")


def padded_config(config: TransformerConfig) -> TransformerConfig:
    """Return the config whose heads have the sizes that the graphs give them; the same one where nothing changes."""
    keys, values = config.head_dim, config.value_dim
    turned = config.positions == "rotary"
    size = 2 * _up(max(keys // 2, -(-values // 2))) if turned else _up(max(keys, values))
    if size == keys == values and not (turned and config.rotary_interleaved):
        return config
    return config.changed(head_size=size, value_size=None, attention_scale=config.score_scale, rotary_interleaved=False)


def pad_heads(model: Transformer) -> Transformer:
    """Return a model that computes the same with heads of the padded sizes; it shares all other weights.

    The model itself comes back where nothing changes.
    """
    config = padded_config(model.config)
    if config == model.config:
        return model
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    padded: Transformer = copy.deepcopy(model, dict[int, object](shared))
    padded.config = config
    for module in padded.modules():
        if isinstance(module, MultiHeadAttention):
            _pad_attention(module, model.config, config)
    return padded


def unpad_heads(state_dict: Mapping[str, Tensor], config: TransformerConfig) -> dict[str, Tensor]:
    """Undo `pad_heads`: the weights of its result -> those of the model of this ``config``."""
    size = padded_config(config).head_dim
    keys, values = key_places(config), list(range(config.value_dim))
    unpadded = dict(state_dict)
    for name, tensor in state_dict.items():
        module, _, kind = name.rpartition(".")
        owner, _, part = module.rpartition(".")
        if part in _PARTS and owner.endswith("_attention"):
            places = keys if part in ("q_proj", "k_proj") else values
            if part != "out_proj":
                unpadded[name] = torch.unflatten(tensor, 0, (-1, size))[:, places].flatten(0, 1)
            elif kind == "weight":
                unpadded[name] = torch.unflatten(tensor, 1, (-1, size))[:, :, places].flatten(1)
        elif part == "relative":
            unpadded[name] = tensor[..., keys if kind == "keys" else values]
    return unpadded


def key_places(config: TransformerConfig) -> list[int]:
    """Return where each of a head's d_k numbers is in a padded head."""
    size = config.head_dim
    if config.positions != "rotary":
        return list(range(size))
    half, padded_half = size // 2, _up(size // 2)
    if config.rotary_interleaved:
        return [place // 2 + padded_half * (place % 2) for place in range(size)]
    return [place if place < half else place - half + padded_half for place in range(size)]


def _up(size: int) -> int:
    return -(-size // _MULTIPLE) * _MULTIPLE


def _pad_attention(attention: MultiHeadAttention, config: TransformerConfig, padded: TransformerConfig) -> None:
    size = padded.head_dim
    keys, values = key_places(config), list(range(config.value_dim))
    attention.q_proj = _pad_rows(attention.q_proj, size, keys, config.head_dim)
    attention.k_proj = _pad_rows(attention.k_proj, size, keys, config.head_dim)
    attention.v_proj = _pad_rows(attention.v_proj, size, values, config.value_dim)
    attention.out_proj = _pad_columns(attention.out_proj, size, values)
    attention.head_size = attention.value_size = size
    if attention.relative is not None:
        relative = attention.relative
        relative.keys = _parameter(_spread(relative.keys.detach(), size, keys))
        relative.values = _parameter(_spread(relative.values.detach(), size, values))
    if attention.rotary is not None:
        rotary = attention.rotary
        rotary.interleaved = False
        added = _up(config.head_dim // 2) - config.head_dim // 2  # pairs that are not turned
        rotary.cosines = torch.nn.functional.pad(rotary.cosines, (0, added), value=1.0)
        rotary.sines = torch.nn.functional.pad(rotary.sines, (0, added))


def _pad_rows(layer: nn.Linear, size: int, places: list[int], head_size: int) -> nn.Linear:
    """Pad a projection to heads: its output is [heads * head_size]."""

    def pad(tensor: Tensor) -> Tensor:
        heads = torch.unflatten(tensor.detach(), 0, (-1, head_size)).movedim(1, -1)  # [heads, …, head_size]
        return _spread(heads, size, places).movedim(-1, 1).flatten(0, 1)

    return linear_of(pad(layer.weight), None if layer.bias is None else pad(layer.bias))


def _pad_columns(layer: nn.Linear, size: int, places: list[int]) -> nn.Linear:
    """Pad a projection from heads: its input is [heads * head_size]."""
    heads = torch.unflatten(layer.weight.detach(), 1, (-1, len(places)))  # [M, heads, head_size]
    return linear_of(_spread(heads, size, places).flatten(1), layer.bias)


def _spread(x: Tensor, size: int, places: list[int]) -> Tensor:
    """Put the numbers of the last dimension at their places among ``size``: zeros elsewhere."""
    padded = x.new_zeros(*x.shape[:-1], size)
    padded[..., places] = x
    return padded


def linear_of(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    """Return a linear layer with this weight [out, in] and this bias. Parameters stay the same ones."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    layer.weight = _parameter(weight)
    if bias is not None:
        layer.bias = _parameter(bias)
    return layer


def _parameter(tensor: Tensor) -> nn.Parameter:
    return tensor if isinstance(tensor, nn.Parameter) else nn.Parameter(tensor.contiguous(), requires_grad=False)
