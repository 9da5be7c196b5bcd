"""Puts the tensors of another project's Transformer where ours has them, and accounts for every one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from translane_export.errors import ExportError
from translane_export.model import Transformer, TransformerConfig
from translane_export.model.config import Tying


def find_table(tensors: Mapping[str, Tensor], name: str, path: Path) -> Tensor:
    """The tensor `name` of `path`, one vector or more by number. Raises ExportError where it is none."""
    if name not in tensors:
        raise ExportError(f"{path}: the tensor {name} is missing")
    if tensors[name].ndim < 2 or not tensors[name].numel():
        raise ExportError(f"{path}: the tensor {name} is {list(tensors[name].shape)}, and it should be a table")
    return tensors[name]


def find_tying(source: Tensor, target: Tensor, projection: Tensor) -> Tying:
    """Which of the source embedding, the target embedding and the output projection [V, M] hold the same numbers."""
    if not _same(target, projection):
        return "none"
    return "three-way" if _same(source, target) else "two-way"


def rename_tensors(
    tensors: Mapping[str, Tensor],
    config: TransformerConfig,
    names: Mapping[str, str],
    *,
    path: Path,
    given: Mapping[str, Tensor] | None = None,
    unbiased: str = "(?!)",
    ignored: str = "(?!)",
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the weights of ``Transformer(config)`` in float32, those that are tied as one tensor, and where each is.

    Args:
        tensors: the other project's, by its names.
        config: says which weights there are, and of which shapes.
        names: our modules to theirs; ``*`` stands for the number of a layer.
        path: their file, for errors.
        given: weights under our names that are no tensors of theirs, as tables of positions.
        unbiased: pattern of our modules that may lack a bias, which is zero then.
        ignored: pattern of their tensors that hold nothing the model needs.

    Raises:
        ExportError: a tensor is missing, of another shape, or has no place.
    """
    with torch.device("meta"):
        expected = Transformer(config).state_dict()
    state: dict[str, Tensor] = {}
    placed: dict[str, Tensor] = {}
    origins: dict[str, str] = {}  # see `Checkpoint`
    for name, parameter in expected.items():
        if given and name in given:
            if given[name].shape != parameter.shape:
                raise ExportError(
                    f"{path}: the {name} is {list(given[name].shape)}, where its settings make it"
                    f" {list(parameter.shape)}"
                )
            origins[name] = f"{path}: the table {name}"
            state[name] = given[name]
            continue
        module, _, kind = name.rpartition(".")
        number = "".join(re.findall(r"\.(\d+)\.", name))
        theirs = names[re.sub(r"\.\d+\.", ".*.", module)].replace("*", number) + f".{kind}"
        if theirs not in tensors:
            if kind == "bias" and re.fullmatch(unbiased, module):
                state[name] = torch.zeros(parameter.shape)
                continue
            raise ExportError(f"{path}: the tensor {theirs} is missing")
        if tensors[theirs].shape != parameter.shape:
            raise ExportError(
                f"{path}: the tensor {theirs} is {list(tensors[theirs].shape)}, where its settings make it"
                f" {list(parameter.shape)}"
            )
        origins[name] = f"{path}: the tensor {theirs}"
        state[name] = placed.setdefault(theirs, tensors[theirs].float())
    left = sorted(name for name in tensors.keys() - placed.keys() if not re.fullmatch(ignored, name))
    if left:
        others = f" and {len(left) - 1} more" if len(left) > 1 else ""
        raise ExportError(f"{path}: the tensor {left[0]}{others} has no place in the model that its settings describe")
    return _tie(state, config.tie_embeddings), origins


def _tie(state: dict[str, Tensor], tying: Tying) -> dict[str, Tensor]:
    if tying != "none":
        state["output_projection.weight"] = state["decoder.embedding.tokens.weight"]
    if tying == "three-way":
        state["encoder.embedding.tokens.weight"] = state["decoder.embedding.tokens.weight"]
    return state


def _same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and (one.data_ptr() == other.data_ptr() or torch.equal(one, other))
