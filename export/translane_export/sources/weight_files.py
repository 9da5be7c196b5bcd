"""Reads the tensors of a checkpoint from whichever files they are in, without holding copies of them.

Safetensors and PyTorch's zip files are memory-mapped: a tensor takes memory once something looks at it, and the
system may take it back. Pickles are only ever read with ``weights_only=True``, which builds tensors and runs nothing.
"""

from __future__ import annotations

import json
import pickle
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from translane_export.broken_files import PYTORCH, SAFETENSORS, UNREADABLE, broken_file, unreadable_file
from translane_export.errors import ExportError

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


def _read_pickle(path: Path) -> Any:
    """Return what a file of `torch.save` holds, built from tensors and plain Python values alone.

    Raises:
        ExportError: the file is missing, corrupt, or needs code to be read.
    """
    try:
        return _load(path)
    except pickle.UnpicklingError:
        raise broken_file(path, PYTORCH, "it holds more than tensors and plain values, which is not read") from None
    except UNREADABLE as error:
        raise unreadable_file(path, PYTORCH, error) from None


def _load(path: Path) -> Any:
    # Files from before PyTorch 1.6 are no zip archives, and cannot be memory-mapped.
    with path.open("rb") as file:
        zipped = file.read(2) == b"PK"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is wrong is an error here, and the rest is nobody's concern
        return torch.load(path, map_location="cpu", weights_only=True, mmap=True if zipped else None)


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
    tensors = _read_safetensors(path) if path.suffix == ".safetensors" else _read_pickle(path)
    if not isinstance(tensors, Mapping):
        raise ExportError(f"{path}: it holds a {type(tensors).__name__}, not tensors by name")
    for name, tensor in tensors.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise ExportError(f"{path}: {name!r} is a {type(tensor).__name__}, not a tensor")
    return {name: StoredTensor(name, tensor.detach(), path) for name, tensor in tensors.items()}


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (safe_open is no mapping)
    except (OSError, SafetensorError, ValueError, RuntimeError):
        raise broken_file(path, SAFETENSORS) from None
