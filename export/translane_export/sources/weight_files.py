"""Reads the tensors of a checkpoint from whichever files they are in, without holding copies of them.

Safetensors and PyTorch's zip files are memory-mapped: a tensor takes memory once something looks at it, and the
system may take it back. Pickles are only ever read with ``weights_only=True``, which builds tensors and runs nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from translane_export.broken_files import broken_file
from translane_export.errors import ExportError
from translane_export.file_readers import read_safetensors
from translane_export.sources.inert_pickle import read_plain

# What Hugging Face folders hold; the first that is there counts.
FILES = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")

_INDEX = ".index.json"
_FLOATING = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


@dataclass(frozen=True)
class StoredTensor:
    """A tensor as it is stored, and where."""

    name: str
    tensor: Tensor
    file: Path

    def weight(self) -> Tensor:
        """Return it as float32: the same memory where it is stored so.

        Raises:
            ExportError: it holds no floating-point numbers.
        """
        if self.tensor.dtype not in _FLOATING:
            kind = str(self.tensor.dtype).removeprefix("torch.")
            raise ExportError(f"{self.file}: the tensor {self.name} is {kind}, and weights are floating-point numbers")
        return self.tensor.float()


def stored_tensors(tensors: Mapping[str, Tensor], file: Path) -> dict[str, StoredTensor]:
    """Return the tensors of one file by their names."""
    return {name: StoredTensor(name, tensor.detach(), file) for name, tensor in tensors.items()}


def read_weights(folder: Path) -> dict[str, StoredTensor]:
    """Return the tensors of a Hugging Face folder by their names, as they are stored.

    Raises:
        ExportError: there are none, a file is missing or corrupt, or it holds anything but tensors.
    """
    path = next((folder / name for name in FILES if (folder / name).is_file()), None)
    if path is None:
        raise ExportError(
            f"checkpoint {folder}: it has no weights, neither {FILES[0]} nor {FILES[2]}, whole or in shards"
        )
    if not path.name.endswith(_INDEX):
        return _read_file(path)
    weights: dict[str, StoredTensor] = {}
    for shard, names in _shards(path).items():
        if not shard.is_file():
            raise ExportError(f"{shard}: the file is missing, a shard that {path.name} names")
        tensors = _read_file(shard)
        if missing := sorted(names - tensors.keys()):
            raise ExportError(f"{shard}: the tensor {missing[0]}, which {path.name} says is here, is missing")
        if repeated := sorted(tensors.keys() & weights.keys()):
            raise ExportError(f"{shard}: the tensor {repeated[0]} is in {weights[repeated[0]].file.name} too")
        weights |= tensors
    return weights


def _shards(index: Path) -> dict[Path, set[str]]:
    """Return the names of the tensors that the index says are in each shard."""
    try:
        places = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        items = [(str(name), str(file)) for name, file in places.items()]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        reason = "it is no index of shards, which has a weight_map of tensor names to files"
        raise broken_file(index, "index of shards", reason) from None
    shards: dict[Path, set[str]] = {}
    for name, file in items:
        if Path(file).name != file:
            raise ExportError(f"{index}: the shard {file!r} is not a file beside it")
        shards.setdefault(index.parent / file, set()).add(name)
    return shards


def _read_file(path: Path) -> dict[str, StoredTensor]:
    tensors = read_safetensors(path)[0] if path.suffix == ".safetensors" else read_plain(path)
    if not isinstance(tensors, Mapping):
        raise ExportError(f"{path}: it holds a {type(tensors).__name__}, not tensors by name")
    for name, tensor in tensors.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise ExportError(f"{path}: {name!r} is a {type(tensor).__name__}, not a tensor")
    return stored_tensors(tensors, path)
