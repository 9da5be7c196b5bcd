"""The student: a model of the teacher's kind with fewer layers, which starts from the teacher's weights.

A deep encoder and a shallow decoder lose little quality (Kasai et al. 2021, https://arxiv.org/abs/2006.10369): the
encoder runs once a sentence, and the decoder once a token. Layers copied from the teacher need far less training than
random ones (Shleifer & Rush 2020, https://arxiv.org/abs/2010.13002).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from translane_export.checkpoint import Checkpoint, save_checkpoint
from translane_export.distill.errors import DistillError
from translane_export.distill.settings import DistillSettings
from translane_export.model import Transformer, TransformerConfig
from translane_export.train.settings import in_flags
from translane_export.train.vocabulary import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from translane_server.bundle.manifest import SentencePieceTokenizerEntry

_UP, _DOWN, _GATE = "feed_forward.up_proj", "feed_forward.down_proj", "feed_forward.gate_proj"


@dataclass(frozen=True)
class Vocabularies:
    """The SentencePiece models of source and target, whose ids are the teacher's."""

    source: Path
    target: Path


def shared_vocabularies(teacher: Checkpoint) -> Vocabularies | None:
    """Return the teacher's vocabularies, if `translane train` can train with them: its ids are SentencePiece's."""
    config, entry = teacher.config, teacher.tokenizer.entry
    special = (config.pad_id, config.unk_id, config.bos_id, config.eos_id, config.start_id)
    if special != (PAD_ID, UNK_ID, BOS_ID, EOS_ID, BOS_ID) or not isinstance(entry, SentencePieceTokenizerEntry):
        return None
    if entry.source_ids or entry.target_ids or not entry.source_eos or teacher.languages.templates.source:
        return None
    source, target = teacher.tokenizer.files[entry.source], teacher.tokenizer.files[entry.target]
    return Vocabularies(source, target) if isinstance(source, Path) and isinstance(target, Path) else None


def student_config(settings: DistillSettings, teacher: TransformerConfig) -> TransformerConfig:
    """Return the teacher's configuration with the student's sizes.

    Raises:
        DistillError: the sizes do not fit each other.
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
        raise DistillError(f"the student: {in_flags(DistillSettings, str(error))}") from None


def inherits(config: TransformerConfig, teacher: TransformerConfig) -> bool:
    """Whether a student can start from the teacher's weights: only numbers of layers and inner sizes may differ."""
    free = {name: getattr(teacher, name) for name in ("encoder_layers", "decoder_layers", "ffn_size")}
    return config.ffn_size <= teacher.ffn_size and config.changed(**free) == teacher


def initial_model(config: TransformerConfig, teacher: Checkpoint | None, seed: int) -> Transformer:
    """Return the student before training, with the weights of `teacher` or, without one, random weights."""
    torch.manual_seed(seed)
    model = Transformer(config)
    if teacher:
        model.load_state_dict(inherited(teacher.state_dict, teacher.config, config))
    return model


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


def write_student(folder: Path, model: Transformer, vocabularies: Vocabularies, languages: tuple[str, str]) -> None:
    """Write the student before training as a checkpoint, for ``translane train --init``."""
    save_checkpoint(
        folder,
        config=model.config,
        state_dict=model.state_dict(),
        source_tokenizer=vocabularies.source,
        target_tokenizer=vocabularies.target,
        source_language=languages[0],
        target_language=languages[1],
        samples=(),
        metadata={},
    )
