"""The settings that `translane train` trains the student with, as a TOML file that its ``--config`` takes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from translane_export.model import TransformerConfig
from translane_export.train.settings import TrainSettings
from translane_server.core.files import replaced_whole

# Copied layers are near their goal: large updates would undo them.
_INHERITED = {"learning_rate": 5e-4, "warmup_steps": 200}
_RANDOM = {"learning_rate": 1e-3, "warmup_steps": 1000}

Value = str | int | float | bool


def student_settings(
    config: TransformerConfig,
    *,
    train: Path,
    init: Path | None,
    inherited: bool,
    languages: tuple[str, str],
    licence: str,
) -> dict[str, Value]:
    """Return the settings of the student's training.

    Args:
        config: the student's.
        train: the new text.
        init: the checkpoint that training starts from; None leaves the vocabularies to training.
        inherited: whether that checkpoint has the teacher's weights.
        languages: the tags of source and target.
        licence: of the teacher, which its outputs may carry on.
    """
    settings: dict[str, Value] = {"train": str(train.resolve())}
    if init:
        settings["init"] = str(init.resolve())
    settings |= {"source_language": languages[0], "target_language": languages[1]}
    if licence:
        settings["data_licence"] = licence
    return settings | (_INHERITED if inherited else _RANDOM) | ({} if init else _sizes(config))


def _sizes(config: TransformerConfig) -> dict[str, Value]:
    """Return what of the configuration `translane train` has a setting for, where it is not the default."""
    known = TrainSettings.model_fields
    values = {name: value for name, value in config if name in known}
    return {name: value for name, value in values.items() if value is not None and value != known[name].default}


def write_settings(path: Path, settings: Mapping[str, Value]) -> None:
    """Write the settings as TOML; the file appears complete or not at all."""
    # TOML's strings, numbers and words for true and false are JSON's, but for characters that no path should have.
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in settings.items()]
    with replaced_whole(path) as new:
        new.write_text("".join(lines), encoding="utf-8")
