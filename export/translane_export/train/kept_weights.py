"""The last weights of a run, on disk, and their average."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from translane_export.checkpoint import load_tensors, save_tensors


class KeptWeights:
    """A folder with the weights after some steps, a file each."""

    def __init__(self, folder: Path) -> None:
        """Make the folder where it is missing. Raises OSError."""
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def save(self, step: int, state_dict: Mapping[str, torch.Tensor]) -> None:
        """Keep the weights after `step` updates."""
        save_tensors(self._path(step), state_dict)

    def average(self, steps: Sequence[int]) -> dict[str, torch.Tensor]:
        """Return the mean of the weights of `steps`; weights that are not there are left out, if others are."""
        # A kill between the deletion of weights and the next save leaves steps without a file.
        paths = [path for path in map(self._path, steps) if path.exists()]
        total = load_tensors(paths[0]).tensors
        for path in paths[1:]:
            for name, tensor in load_tensors(path).tensors.items():
                total[name] = total[name] + tensor
        return {name: tensor / len(paths) for name, tensor in total.items()}

    def delete(self, steps: Sequence[int]) -> None:
        """Delete the weights of `steps`, where they are there."""
        for step in steps:
            self._path(step).unlink(missing_ok=True)

    def _path(self, step: int) -> Path:
        return self._folder / f"step-{step:07d}.safetensors"
