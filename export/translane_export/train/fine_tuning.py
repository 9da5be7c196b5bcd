"""Fine-tuning: a run that starts from a checkpoint's weights and keeps its vocabularies, with stand-ins added.

Checkpoints of other projects number the pieces of their SentencePiece models in their own way. They are numbered anew,
as training numbers them, so what comes of them is a checkpoint of ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from sentencepiece.sentencepiece_model_pb2 import ModelProto
from torch import Tensor

from translane_export.core.checkpoint import Checkpoint, load_checkpoint
from translane_export.core.languages import is_tag
from translane_export.model import PRESETS, Transformer, TransformerConfig
from translane_export.pruning.pruning import gathered
from translane_export.sources.readers import find_reader
from translane_export.train.errors import TrainError
from translane_export.train.settings import TrainSettings
from translane_export.train.vocabulary import BOS_ID, EOS_ID, PAD_ID, UNK_ID, has_own_ids, with_stand_ins
from translane_server.bundle.manifest import SentencePieceTokenizerEntry
from translane_server.core.errors import SettingsError
from translane_server.core.files import parse_json
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
    name = _name(init)
    checkpoint = load_checkpoint(own) if own else find_reader(init).read(init)
    if checkpoint.ranges:
        raise TrainError(f"{init}: an int8 model cannot be fine-tuned; start from the checkpoint that it is from")
    vocabularies, checkpoint = _own_numbering(checkpoint, own or init)
    config, state = checkpoint.config, checkpoint.state_dict
    if settings.sampling_alpha:
        for side, vocabulary in zip(("source", "target"), vocabularies, strict=True):
            trainer = ModelProto.FromString(vocabulary).trainer_spec
            if trainer.model_type != trainer.UNIGRAM:
                raise SettingsError(
                    f"--sampling-alpha: the {side} vocabulary of {name} is no unigram vocabulary, and knows one"
                    " segmentation only"
                )
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
    if settings.stand_ins:
        vocabularies = with_stand_ins(vocabularies[0]), with_stand_ins(vocabularies[1])
        config = config.changed(source_vocab_size=_pieces(vocabularies[0]), target_vocab_size=_pieces(vocabularies[1]))
        state = _grown(state, config)
    return Start(name, config, state, vocabularies, settings.model_copy(update=taken))


def _own_numbering(checkpoint: Checkpoint, folder: Path) -> tuple[tuple[bytes, bytes], Checkpoint]:
    """Return the SentencePiece models of a checkpoint, and the checkpoint with the ids that they give.

    Raises:
        ExportError: the tokenizer's files are wrong, or do not fit the model.
        TrainError: the checkpoint has no such models, or tells its languages by tokens.
    """
    checkpoint.tokenizer.load(checkpoint.config, checkpoint.languages)  # refuses ids that the model does not have
    config, entry, templates = checkpoint.config, checkpoint.tokenizer.entry, checkpoint.languages.templates
    if not isinstance(entry, SentencePieceTokenizerEntry) or not entry.source_eos:
        raise TrainError(f"{folder}: only models whose tokenizers are SentencePiece's can be fine-tuned")
    if templates.source or templates.target or templates.text_prefix or templates.pair_prefixes:
        raise TrainError(f"{folder}: a model of several languages cannot be fine-tuned")
    models = checkpoint.tokenizer.read(entry.source), checkpoint.tokenizer.read(entry.target)
    sizes = config.source_vocab_size, config.target_vocab_size
    if has_own_ids(checkpoint):
        for model, side, size in zip(models, ("source", "target"), sizes, strict=True):
            if _pieces(model) != size:
                raise TrainError(
                    f"{folder}: its {side} vocabulary has {_pieces(model):,} pieces, and the model has {size:,}"
                )
        return models, checkpoint
    ids = [
        parse_json(checkpoint.tokenizer.read(name)) if name else None for name in (entry.source_ids, entry.target_ids)
    ]
    source, source_rows = _numbered(models[0], ids[0], config, unknown=True)
    target, target_rows = _numbered(models[1], ids[1], config, unknown=False)
    suppressed = (new for new, old in enumerate(target_rows) if old in config.suppressed_ids and new != EOS_ID)
    tying = config.tie_embeddings
    changed = config.changed(
        source_vocab_size=len(source_rows),
        target_vocab_size=len(target_rows),
        pad_id=PAD_ID,
        unk_id=UNK_ID,
        bos_id=BOS_ID,
        eos_id=EOS_ID,
        decoder_start_id=None,
        tie_embeddings="two-way" if tying == "three-way" and source_rows != target_rows else tying,
        suppressed_ids=tuple(suppressed),  # the start, too, where it was the padding
    )
    state = gathered(checkpoint.state_dict, source_rows, target_rows)
    return (source, target), replace(checkpoint, config=changed, state_dict=state)


def _numbered(
    model: bytes, ids: Mapping[str, int] | None, config: TransformerConfig, *, unknown: bool
) -> tuple[bytes, tuple[int, ...]]:
    """Return a SentencePiece model with our special pieces first, and the old id of each piece.

    A piece that the old model does not know has the id of what is unknown, or is left out.
    """
    proto = ModelProto.FromString(model)
    kinds = proto.SentencePiece
    old = [
        (piece, number) for number, piece in enumerate(proto.pieces) if piece.type not in (kinds.CONTROL, kinds.UNKNOWN)
    ]
    known = [(piece, number if ids is None else ids.get(piece.piece)) for piece, number in old]
    kept = [
        (piece, config.unk_id if number is None else number) for piece, number in known if unknown or number is not None
    ]
    special = [("<pad>", kinds.CONTROL), ("<unk>", kinds.UNKNOWN), ("<s>", kinds.CONTROL), ("</s>", kinds.CONTROL)]
    made = [kinds(piece=text, score=0.0, type=kind) for text, kind in special]
    made += [piece for piece, _ in kept]
    new = ModelProto()
    new.CopyFrom(proto)
    del new.pieces[:]
    new.pieces.extend(made)
    trainer = new.trainer_spec
    trainer.vocab_size = len(made)
    trainer.pad_id, trainer.unk_id, trainer.bos_id, trainer.eos_id = PAD_ID, UNK_ID, BOS_ID, EOS_ID
    trainer.pad_piece, trainer.unk_piece, trainer.bos_piece, trainer.eos_piece = (text for text, _ in special)
    rows = (config.pad_id, config.unk_id, config.start_id, config.eos_id, *(number for _, number in kept))
    return bytes(new.SerializeToString()), rows


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
