"""The student: a model of the teacher's kind with fewer layers, and the settings that `translane train` trains it with.

A deep encoder and a shallow decoder lose little quality (Kasai et al. 2021, https://arxiv.org/abs/2006.10369): the
encoder runs once a sentence, and the decoder once a token. Layers copied from the teacher need far less training than
random ones (Shleifer & Rush 2020, https://arxiv.org/abs/2010.13002).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from translane_export.core.checkpoint import Checkpoint, save_checkpoint
from translane_export.distill.settings import DistillSettings
from translane_export.model import Transformer, TransformerConfig
from translane_export.train.errors import TrainError
from translane_export.train.settings import TrainSettings, in_flags
from translane_export.train.vocabulary import has_own_ids
from translane_server.bundle.manifest import SentencePieceTokenizerEntry
from translane_server.core.files import replaced_whole
from translane_server.translation.languages import LanguagePair

# Copied layers are near their goal: large updates would undo them.
_INHERITED = {"learning_rate": 5e-4, "warmup_steps": 200}
_RANDOM = {"learning_rate": 1e-3, "warmup_steps": 1000}

_UP, _DOWN, _GATE = "feed_forward.up_proj", "feed_forward.down_proj", "feed_forward.gate_proj"


def shared_vocabularies(teacher: Checkpoint) -> tuple[Path, Path] | None:
    """Return the teacher's vocabularies, those of source and target, if their ids are those of `translane train`."""
    entry = teacher.tokenizer.entry
    if not isinstance(entry, SentencePieceTokenizerEntry) or not has_own_ids(teacher):
        return None
    if not entry.source_eos or teacher.languages.templates.source:
        return None
    source, target = teacher.tokenizer.files[entry.source], teacher.tokenizer.files[entry.target]
    return (source, target) if isinstance(source, Path) and isinstance(target, Path) else None


def student_config(settings: DistillSettings, teacher: TransformerConfig) -> TransformerConfig:
    """Return the teacher's configuration with the student's sizes.

    Raises:
        TrainError: the sizes do not fit each other.
    """
    sizes: dict[str, Any] = {"decoder_layers": settings.decoder_layers}
    for name in ("encoder_layers", "d_model", "heads", "ffn_size"):
        if (size := getattr(settings, name)) is not None:
            sizes[name] = size
    if {"d_model", "heads"} & sizes.keys():
        sizes |= {"head_size": None, "value_size": None, "kv_heads": None}
    try:
        return teacher.changed(**sizes)
    except ValueError as error:
        raise TrainError(f"the student: {in_flags(DistillSettings, str(error))}") from None


def inherits(config: TransformerConfig, teacher: TransformerConfig) -> bool:
    """Whether a student can start from the teacher's weights: only numbers of layers and inner sizes may differ."""
    free = {name: getattr(teacher, name) for name in ("encoder_layers", "decoder_layers", "ffn_size")}
    return config.ffn_size <= teacher.ffn_size and config.changed(**free) == teacher


def inherited(state: Mapping[str, Tensor], teacher: TransformerConfig, config: TransformerConfig) -> dict[str, Tensor]:
    """Return the weights that a student has from the teacher, whose weights are `state`.

    The student's layers are spread evenly over the teacher's. A smaller feed-forward network keeps the units with the
    largest weights.
    """
    found = {name: tensor for name, tensor in state.items() if ".layers." not in name}
    for side, theirs, ours in (
        ("encoder", teacher.encoder_layers, config.encoder_layers),
        ("decoder", teacher.decoder_layers, config.decoder_layers),
    ):
        for layer, origin in enumerate(spread(theirs, ours)):
            prefix = f"{side}.layers.{origin}."
            weights = {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
            found |= {f"{side}.layers.{layer}.{name}": value for name, value in _narrowed(weights, config).items()}
    return found


def spread(theirs: int, ours: int) -> list[int]:
    """Return the teacher's layer for each of the student's, from the first to the last; a lone layer is the first."""
    if ours == 1:
        return [0]
    return [round(layer * (theirs - 1) / (ours - 1)) for layer in range(ours)]


def _narrowed(weights: Mapping[str, Tensor], config: TransformerConfig) -> dict[str, Tensor]:
    """Return a layer's weights with as many inner units of the feed-forward network as the student has."""
    inner, outer = weights[f"{_UP}.weight"], weights[f"{_DOWN}.weight"]  # [F, M], [M, F]
    if len(inner) == config.ffn_size:
        return dict(weights)
    strength = inner.norm(dim=1) * outer.norm(dim=0)  # [F]
    kept = strength.topk(config.ffn_size).indices.sort().values
    rows = {f"{part}.{kind}" for part in (_UP, _GATE) for kind in ("weight", "bias")}
    narrowed = {name: value[kept] if name in rows else value for name, value in weights.items()}
    return narrowed | {f"{_DOWN}.weight": outer[:, kept]}


def write_student(settings: DistillSettings, teacher: Checkpoint, languages: LanguagePair, licence: str) -> str:
    """Write the settings of the student's training, and the checkpoint that it starts from if there is one."""
    config, vocabularies = student_config(settings, teacher.config), shared_vocabularies(teacher)
    inherits_weights = settings.from_teacher and vocabularies is not None and inherits(config, teacher.config)
    values: dict[str, str | int | float | bool] = {"train": str((settings.output / "train.tsv").resolve())}
    if vocabularies:
        start = settings.output / "student"
        torch.manual_seed(settings.seed)
        model = Transformer(config)
        if inherits_weights:
            model.load_state_dict(inherited(teacher.state_dict, teacher.config, config))
        save_checkpoint(
            start,
            config=config,
            state_dict=model.state_dict(),
            source_tokenizer=vocabularies[0],
            target_tokenizer=vocabularies[1],
            source_language=languages.source,
            target_language=languages.target,
            samples=(),
            metadata={},
        )
        values["init"] = str(start.resolve())
    values |= {"source_language": languages.source, "target_language": languages.target}
    if licence:
        values["data_licence"] = licence
    values |= _INHERITED if inherits_weights else _RANDOM
    if not vocabularies:
        values |= _sizes(config)
    file = settings.output / "student.toml"
    with replaced_whole(file) as new:
        # TOML's strings, numbers and words for true and false are JSON's, but for characters that no path should have.
        lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in values.items()]
        new.write_text("".join(lines), encoding="utf-8")
    weights = "the teacher's weights" if inherits_weights else "random weights"
    pieces = "the teacher's vocabularies" if vocabularies else "vocabularies of its own"
    return (
        f"{file}: a student that starts from {weights} and has {pieces}; to train it:\n"
        f"  translane train --config {file} --valid FILE --output FOLDER"
    )


def _sizes(config: TransformerConfig) -> dict[str, Any]:
    """Return what of the configuration `translane train` has a setting for, where it is not the default."""
    known = TrainSettings.model_fields
    sizes = {name: value for name, value in config if name in known and value not in (None, known[name].default)}
    joint = {"joint_vocabulary": True} if config.tie_embeddings == "three-way" else {}
    return sizes | joint
