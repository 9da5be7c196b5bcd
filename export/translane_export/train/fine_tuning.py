"""Fine-tuning: a run that starts from a checkpoint's weights and keeps its vocabularies, with stand-ins added."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from sentencepiece.sentencepiece_model_pb2 import ModelProto
from torch import Tensor

from translane_export.core.checkpoint import load_checkpoint
from translane_export.core.languages import is_tag
from translane_export.model import PRESETS, Transformer, TransformerConfig
from translane_export.train.errors import TrainError
from translane_export.train.settings import TrainSettings
from translane_export.train.vocabulary import BOS_ID, EOS_ID, PAD_ID, UNK_ID, Vocabulary, with_stand_ins
from translane_server.core.errors import SettingsError
from translane_server.settings.loader import flag_name

_MAY_DIFFER = {"dropout", "attention_dropout", "activation_dropout"}
# Fields that follow from others where a config leaves them open, and the properties that say what follows.
_RESOLVED = {
    "head_size": "head_dim",
    "value_size": "value_dim",
    "kv_heads": "key_value_heads",
    "attention_biases": "has_attention_biases",
}


@dataclass(frozen=True)
class Start:
    """What a fine-tuned run starts from.

    ``name`` is the checkpoint's, without the machine's folders. ``config`` is the checkpoint's, with the dropout that
    was asked for. ``settings`` are the run's, with the checkpoint's values where no flag was given.
    ``vocabularies`` are the SentencePiece models of source and target. Stand-ins that they lack have been added, to the
    weights too, if the run is to teach them.
    """

    name: str
    config: TransformerConfig
    state_dict: Mapping[str, Tensor]
    vocabularies: tuple[bytes, bytes]
    settings: TrainSettings

    def load_into(self, model: Transformer) -> None:
        """Give the model the checkpoint's weights. Raises TrainError when they are not those of its configuration."""
        try:
            model.load_state_dict(self.state_dict)
        except RuntimeError as error:
            raise TrainError(f"{self.name}: the weights do not fit config.json ({error})") from None


def read_start(settings: TrainSettings, init: Path, own: Path | None = None) -> Start:
    """Read the checkpoint `init`, and complete `settings` by it.

    A run that has a last checkpoint of its own has it in the folder ``own``. It is read in place of `init`, as its
    sizes, languages and vocabularies are the same.

    Raises:
        ExportError: the checkpoint cannot be read.
        SettingsError: a flag contradicts the checkpoint; the message names the flag and both values.
        TrainError: training cannot use such a checkpoint.
    """
    folder = own or init
    checkpoint = load_checkpoint(folder)
    config, name = checkpoint.config, _name(init)
    ids = (config.pad_id, config.unk_id, config.bos_id, config.eos_id, config.start_id)
    if ids != (PAD_ID, UNK_ID, BOS_ID, EOS_ID, BOS_ID):
        raise TrainError(f"{folder}: a model with special ids of its own cannot be fine-tuned")
    source_path, target_path = checkpoint.tokenizer.sentencepiece_models()
    for path, size in ((source_path, config.source_vocab_size), (target_path, config.target_vocab_size)):
        vocabulary = Vocabulary(path)
        if len(vocabulary) != size:
            raise TrainError(f"{path}: it has {len(vocabulary):,} pieces, and the model has {size:,}")
        if settings.sampling_alpha and not vocabulary.is_unigram:
            raise SettingsError(f"--sampling-alpha: {path} is no unigram vocabulary, and knows one segmentation only")
    taken: dict[str, Any] = {
        side: _agreed_language(settings, side, tags[0], name)
        for side, tags in (
            ("source_language", checkpoint.languages.source),
            ("target_language", checkpoint.languages.target),
        )
    }
    fields = TransformerConfig.model_fields.keys() & TrainSettings.model_fields.keys()
    given = {field: getattr(settings, field) for field in sorted(fields & settings.model_fields_set)}
    config = config.changed(**{field: given.pop(field) for field in _MAY_DIFFER & given.keys()})
    preset = PRESETS[settings.preset] if "preset" in settings.model_fields_set else {}
    for field, asked in {**preset, **given}.items():
        flag = flag_name(TrainSettings, field) if field in given else f"--preset {settings.preset}: {field}"
        _require_equal(flag, asked, getattr(config, _RESOLVED.get(field, field)), name)
    taken |= {field: getattr(config, field) for field in fields - settings.model_fields_set}
    vocabularies, state = (source_path.read_bytes(), target_path.read_bytes()), checkpoint.state_dict
    if settings.stand_ins:
        vocabularies = with_stand_ins(vocabularies[0]), with_stand_ins(vocabularies[1])
        config = config.changed(source_vocab_size=_pieces(vocabularies[0]), target_vocab_size=_pieces(vocabularies[1]))
        state = _grown(state, config)
    return Start(name, config, state, vocabularies, settings.model_copy(update=taken))


def _pieces(vocabulary: bytes) -> int:
    return len(ModelProto.FromString(vocabulary).pieces)


def _grown(state: Mapping[str, Tensor], config: TransformerConfig) -> dict[str, Tensor]:
    """Return the weights with rows for new pieces, as long as the others; tied ones stay the same."""
    grown = dict(state)
    for name, size in (
        ("encoder.embedding.tokens.weight", config.source_vocab_size),
        ("decoder.embedding.tokens.weight", config.target_vocab_size),
        ("output_projection.weight", config.target_vocab_size),
        ("output_projection.bias", config.target_vocab_size),
    ):
        if name in state and len(state[name]) < size:
            old = state[name]
            shape = (size - len(old), *old.shape[1:])
            new = torch.randn(shape, generator=torch.Generator().manual_seed(0)) * old.std()
            grown[name] = torch.cat((old, torch.zeros(shape) if old.dim() == 1 else new))
    return grown


def _agreed_language(settings: TrainSettings, side: str, theirs: str, name: str) -> str:
    """Return the tag that was given, if its language is the checkpoint's; without one, the checkpoint's tag."""
    ours: str = getattr(settings, side)
    flag = flag_name(TrainSettings, side)
    if not ours:
        if not is_tag(theirs):
            raise SettingsError(f"{flag}: must be given, as the checkpoint {name} has no BCP-47 tag")
        return theirs
    if is_tag(theirs) and ours.partition("-")[0].lower() != theirs.partition("-")[0].lower():
        raise SettingsError(f"{flag}: {ours} is asked for, but the checkpoint {name} has {theirs}")
    return ours


def _require_equal(what: str, ours: object, theirs: object, name: str) -> None:
    if ours != theirs:
        raise SettingsError(f"{what}: {_word(ours)} is asked for, but the checkpoint {name} has {_word(theirs)}")


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _name(folder: Path) -> str:
    """The name of a checkpoint: that of its folder, with the run's where a run made it."""
    resolved = folder.resolve()
    inside_run = resolved.name in ("best", "latest")
    return f"{resolved.parent.name}/{resolved.name}" if inside_run else resolved.name
