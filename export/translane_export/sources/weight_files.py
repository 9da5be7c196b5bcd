"""Reads the tensors of a checkpoint from whichever files they are in, without holding copies of them.

Safetensors and PyTorch's zip files are memory-mapped: a tensor takes memory once something looks at it, and the
system may take it back. Pickles are only ever read with ``weights_only=True``, which builds tensors and runs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from translane_export.core.errors import ExportError
from translane_export.core.file_readers import broken_file, check_weight, is_there, read_safetensors
from translane_export.sources.inert_pickle import read_plain
from translane_server.core.files import MOST_DESCRIPTION_BYTES, parse_json, read_regular
from translane_server.core.terminal import shown

# What Hugging Face folders hold; the first that is there counts.
FILES = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")

_INDEX = ".index.json"


@dataclass(frozen=True)
class StoredTensor:
    """A tensor as it is stored, and where."""

    name: str
    tensor: Tensor
    file: Path

    def weight(self) -> Tensor:
        """Return it as float32: the same memory where it is stored so.

        Raises:
            ExportError: it is no weight.
        """
        self.check()
        return self.tensor.detach().float()

    def check(self) -> None:
        """Refuse a tensor that no weight is, before anything looks at its numbers. Raises ExportError."""
        check_weight(self.tensor, f"{self.file}: the tensor {self.name}")


def stored_tensors(tensors: Mapping[str, Tensor], file: Path) -> dict[str, StoredTensor]:
    """Return the tensors of one file by their names."""
    return {name: StoredTensor(name, tensor, file) for name, tensor in tensors.items()}


def all_tensors(content: Mapping[Any, Any]) -> bool:
    """Whether these are tensors by their names."""
    return all(isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in content.items())


def read_weights(folder: Path) -> dict[str, StoredTensor]:
    """Return the tensors of a Hugging Face folder by their names, as they are stored.

    Raises:
        ExportError: there are none, a file is missing or corrupt, or it holds anything but tensors.
    """
    path = next((folder / name for name in FILES if is_there(folder / name)), None)
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
        places = parse_json(read_regular(index, MOST_DESCRIPTION_BYTES))["weight_map"]
        items = [(str(name), str(file)) for name, file in places.items()]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        reason = "it is no index of shards, which has a weight_map of tensor names to files"
        raise broken_file(index, "index of shards", reason) from None
    shards: dict[Path, set[str]] = {}
    for name, file in items:
        if Path(file).name != file:
            raise ExportError(f"{index}: the shard {shown(file)} is not a file beside it")
        shards.setdefault(index.parent / file, set()).add(name)
    return shards


def _read_file(path: Path) -> dict[str, StoredTensor]:
    tensors = read_safetensors(path)[0] if path.suffix == ".safetensors" else read_plain(path)
    if not isinstance(tensors, Mapping):
        raise ExportError(f"{path}: it holds a {type(tensors).__name__}, not tensors by name")
    for name, tensor in tensors.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise ExportError(f"{path}: {shown(name)} is a {type(tensor).__name__}, not a tensor")
    return stored_tensors(tensors, path)
