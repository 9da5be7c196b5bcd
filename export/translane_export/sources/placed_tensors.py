"""Places the tensors of another project's Transformer under our names, and accounts for every tensor."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from translane_export.core.errors import ExportError
from translane_export.core.file_readers import as_linear
from translane_export.model import Transformer, TransformerConfig
from translane_export.model.config import Tying
from translane_export.sources.weight_files import StoredTensor

Names = Mapping[str, str | tuple[str, ...]]

SOURCE, TARGET, PROJECTION = (
    "encoder.embedding.tokens.weight",
    "decoder.embedding.tokens.weight",
    "output_projection.weight",
)
POSITIONS = {side: f"{side}.embedding.positions.embedding.weight" for side in ("encoder", "decoder")}
"""Names of our tables of position vectors, by stack."""


class PlacedModel(NamedTuple):
    """A model that is read: see `translane_export.core.checkpoint.Checkpoint` for the fields."""

    config: TransformerConfig
    state_dict: dict[str, Tensor]
    origins: dict[str, str]


def named(ours: str, theirs: str, parts: Mapping[str, str]) -> dict[str, str]:
    """Return the names of the `parts` of a module, our parts to theirs, with the module's own names before them."""
    return {f"{ours}.{part}": f"{theirs}.{name}" for part, name in parts.items()}


def find_table(tensors: Mapping[str, Tensor], name: str, path: Path) -> Tensor:
    """Return the tensor `name` of `path`, which has two dimensions or more. Raises ExportError where it has not."""
    if name not in tensors:
        raise ExportError(f"{path}: the tensor {name} is missing")
    return _as_table(StoredTensor(name, tensors[name], path)).tensor


def place_tensors(
    stored: Mapping[str, StoredTensor],
    fields: Mapping[str, Any],
    names: Names,
    *,
    path: Path,
    tables: Mapping[str, Callable[[], Tensor]] | None = None,
    position_offset: int = 0,
    unbiased: str = "(?!)",
    ignored: str = "(?!)",
) -> PlacedModel:
    """Return a model: its configuration, and its weights in float32. Tied weights are one tensor.

    Args:
        stored: the tensors, by their names.
        fields: of `TransformerConfig`, without `tie_embeddings`, which the tensors decide.
        names: our modules or parameters to theirs; ``*`` stands for the number of a layer, and in their names ``**``
            for the number counted from 1. Of several names the first that is stored counts; the others have to be
            equal to it or to have another place.
        path: the file that the fields are from, for errors.
        tables: makes weights that need not be stored, by our names, such as tables of positions. Each is made once
            the weights before it fit the settings, so that no wrong setting decides about memory.
        position_offset: rows that stored tables of positions have before the first position.
        unbiased: pattern of our modules whose bias need not be stored; it is zero then.
        ignored: pattern of their tensors that the model does not need.

    Raises:
        ExportError: the fields make no model; a tensor is missing, of another shape, or has no place.
    """
    finder = _Finder(stored, names, path)
    try:
        config = TransformerConfig(**fields, tie_embeddings=finder.tying())
    except ValueError as error:
        raise ExportError(f"{path}: its settings make no model: {error}") from None
    with torch.device("meta"):
        expected = Transformer(config).state_dict()
    state: dict[str, Tensor] = {}
    origins: dict[str, str] = {}
    weights: dict[str, Tensor] = {}  # by their names, so that a tensor that two of our names share stays one
    for name, parameter in expected.items():
        module, _, kind = name.rpartition(".")
        if found := finder.find(name):
            if found.name not in weights:
                weights[found.name] = found.weight()
            tensor = as_linear(weights[found.name], parameter.shape)
            if name in POSITIONS.values() and tensor.ndim:
                tensor = tensor[position_offset:]
            if tensor.ndim != parameter.ndim and tensor.numel() == parameter.shape[-1]:
                tensor = tensor.reshape(parameter.shape)  # a bias may be stored as [1, V]
            shape, origin = found.tensor.shape, f"{found.file}: the tensor {found.name}"
        elif tables and name in tables:
            tensor = tables[name]()
            shape, origin = tensor.shape, f"{path}: the table {name}"
        elif kind == "bias" and re.fullmatch(unbiased, module):
            state[name] = torch.zeros(parameter.shape)
            continue
        else:
            raise finder.missing(name)
        if tensor.shape != parameter.shape:
            raise ExportError(f"{origin} is {list(shape)}, where its settings make it {list(parameter.shape)}")
        state[name], origins[name] = tensor, origin
    finder.check_leftover(ignored)
    if config.tie_embeddings != "none":
        state[PROJECTION] = state[TARGET]
    if config.tie_embeddings == "three-way":
        state[SOURCE] = state[TARGET]
    return PlacedModel(config, state, origins)


def split_packed(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors with those of PyTorch's `nn.MultiheadAttention` in parts.

    Its in_proj_weight [3·M, M] and in_proj_bias [3·M] become weight and bias of q_proj, k_proj and v_proj.
    """
    split: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        owner, packed, kind = name.partition("attn.in_proj_")
        if packed:
            thirds = zip("qkv", tensor.chunk(3), strict=False)
            split |= {f"{owner}attn.{part}_proj.{kind}": third for part, third in thirds}
        else:
            split[name] = tensor
    return split


def sinusoids(first: int, count: int, width: int) -> Tensor:
    """Return fairseq's vectors [count, M] of positions from `first` on; a zero column comes last where M is odd.

    They are sines, then cosines, of position / 10000^(i / (M/2 - 1)), in float32 from the start, as in training.
    """
    half = width // 2
    frequencies = torch.exp(torch.arange(half, dtype=torch.float) * -(math.log(10000) / (half - 1)))  # [M / 2]
    angles = torch.arange(first, first + count, dtype=torch.float)[:, None] * frequencies  # [count, M / 2]
    return torch.cat([angles.sin(), angles.cos(), torch.zeros(count, width % 2)], dim=1)


class _Finder:
    """Finds stored tensors by our names."""

    def __init__(self, stored: Mapping[str, StoredTensor], names: Names, path: Path) -> None:
        self._stored = stored
        self._names = names
        self._path = path
        self._used: set[str] = set()

    def tying(self) -> Tying:
        """Which of the embeddings and the output projection hold the same numbers."""
        source, target, projection = (self._table(name) for name in (SOURCE, TARGET, PROJECTION))
        if not _same(target, projection):
            return "none"
        return "three-way" if _same(source, target) else "two-way"

    def find(self, name: str) -> StoredTensor | None:
        """Return the first tensor that may be our parameter `name`; tensors equal to it count as used."""
        there = [self._stored[candidate] for candidate in self._candidates(name) if candidate in self._stored]
        for stored in there:
            stored.check()
        self._used.update(stored.name for stored in there if _same(stored, there[0]))
        return there[0] if there else None

    def missing(self, name: str) -> ExportError:
        """What to raise where no tensor is our parameter `name`."""
        wanted = next(iter(self._candidates(name)), name)
        return ExportError(
            f"{self._path}: the tensor {wanted} is missing from the weights of the model that its settings describe"
        )

    def check_leftover(self, ignored: str) -> None:
        """Refuse tensors that have no place in the model."""
        if left := sorted(name for name in self._stored.keys() - self._used if not re.fullmatch(ignored, name)):
            others = f" and {len(left) - 1} more" if len(left) > 1 else ""
            raise ExportError(
                f"{self._stored[left[0]].file}: the tensor {left[0]}{others} has no place in the model that its"
                " settings describe"
            )

    def _table(self, name: str) -> StoredTensor:
        stored = self.find(name)
        if stored is None:
            raise self.missing(name)
        return _as_table(stored)

    def _candidates(self, name: str) -> list[str]:
        pattern = re.sub(r"\.\d+\.", ".*.", name)
        number = "".join(re.findall(r"\.(\d+)\.", name))
        module, _, kind = pattern.rpartition(".")
        suffix = "" if pattern in self._names else f".{kind}"
        theirs = self._names.get(pattern) or self._names.get(module) or ()
        others = (theirs,) if isinstance(theirs, str) else theirs
        after = str(int(number) + 1) if number else ""
        return [other.replace("**", after).replace("*", number) + suffix for other in others]


def _as_table(stored: StoredTensor) -> StoredTensor:
    stored.check()
    if stored.tensor.ndim < 2 or not stored.tensor.numel():
        shape = list(stored.tensor.shape)
        raise ExportError(f"{stored.file}: the tensor {stored.name} is {shape}, and it should be a table")
    return stored


def _same(one: StoredTensor, other: StoredTensor) -> bool:
    if one.tensor.shape != other.tensor.shape:
        return False
    return one.tensor.data_ptr() == other.tensor.data_ptr() or torch.equal(one.tensor, other.tensor)
