"""The settings of a training run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from translane_export.core.languages import is_tag
from translane_export.model.config import PRESETS, ModelChoices, TransformerConfig
from translane_export.train.data import BadLines
from translane_server.settings.loader import Flag, Settings, flag_name

ENV_PREFIX = "TRANSLANE_TRAIN_"

VocabularyKind = Literal["unigram", "bpe", "char", "word"]

BUILT_IN = ("nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf", "identity")
"""Rules SentencePiece knows by name; see its doc/normalization.md."""

SIMPLIFYING_SUFFIX = "_t2s"
NORMALIZATIONS = (*BUILT_IN, *(name + SIMPLIFYING_SUFFIX for name in BUILT_IN))

_KEPT_BY_INIT = (
    *("vocabulary", "joint_vocabulary", "source_vocabulary_size", "target_vocabulary_size"),
    *("source_normalization", "target_normalization", "character_coverage"),
    *("source_word_vectors", "target_word_vectors"),
)
# Settings that say more about another one.
_NEEDED = {
    "sampling_nbest": "--sampling-alpha",
    "rotary_base": "--positions rotary",
    "rotary_interleaved": "--positions rotary",
    "relative_shared": "--relative-window",
    "relative_clipped": "--relative-window",
    "relative_max_distance": "--relative-buckets",
    "look_backward": "--window-size",
    "look_forward": "--window-size",
    "exact_window": "--window-size",
}


class DataSettings(Settings):
    """What a run trains on, what it starts from, and the sizes of its model."""

    train: Annotated[Path | None, Flag("FILE", heading="data")] = Field(
        None, description="Parallel text to train on: TSV, gzipped when it ends in .gz."
    )
    valid: Annotated[Path | None, Flag("FILE")] = Field(None, description="Parallel text for validation BLEU.")
    output: Annotated[Path | None, Flag("FOLDER")] = Field(
        None, description="Folder of the run: checkpoints and the state to resume from."
    )
    source_column: int = Field(0, ge=0, description="Column of the source side, from 0.")
    target_column: int = Field(1, ge=0, description="Column of the target side, from 0.")
    source_language: Annotated[str, Flag("TAG")] = Field(
        "", description="BCP-47 tag of the source language, written into the checkpoint."
    )
    target_language: Annotated[str, Flag("TAG")] = Field("", description="BCP-47 tag of the target language.")
    data_licence: str = Field("", description="Licence and attribution of the data, written into the checkpoint.")
    bad_lines: BadLines = Field("refuse", description="What to do with lines that hold no usable pair.")
    max_length: int = Field(128, ge=1, description="Longest side in pieces; longer pairs are left out of training.")

    vocabulary: Annotated[VocabularyKind, Flag(heading="vocabulary")] = Field(
        "unigram", description="Kind of SentencePiece model."
    )
    joint_vocabulary: bool = Field(
        False, description="One vocabulary for both sides, of --source-vocabulary-size pieces."
    )
    source_vocabulary_size: int = Field(8000, ge=5, description="Pieces on the source side, special ones included.")
    target_vocabulary_size: int = Field(8000, ge=5, description="Pieces on the target side, special ones included.")
    source_normalization: Annotated[str, Flag("NAME")] = Field(
        "nmt_nfkc", description=f"Normalization of the source side: one of {', '.join(NORMALIZATIONS)}."
    )
    target_normalization: Annotated[str, Flag("NAME")] = Field("nmt_nfkc", description="The same for the target side.")
    character_coverage: float = Field(1.0, gt=0, le=1, description="Share of the training text's characters to keep.")
    sampling_alpha: float = Field(0.0, ge=0, description="Subword sampling in training (unigram only); 0 turns it off.")
    sampling_nbest: int = Field(16, ge=2, description="Best segmentations of a sentence to draw from.")
    source_word_vectors: Annotated[Path | None, Flag("FILE")] = Field(
        None, description="Word2vec text file to start source embeddings from."
    )
    target_word_vectors: Annotated[Path | None, Flag("FILE")] = Field(
        None, description="Word2vec text file to start target embeddings from."
    )

    stand_ins: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Share of the pairs in which numbers, names and words are replaced, by stand-ins among others.",
    )

    init: Annotated[Path | None, Flag("FOLDER", heading="fine-tuning")] = Field(
        None, description="Start from this checkpoint's weights, and keep its sizes and vocabularies."
    )

    preset: Annotated[Literal["base", "small", "tiny"], Flag(heading="model")] = Field(
        "small", description="Sizes to start from."
    )
    d_model: int | None = Field(None, description="Model size; overrides the preset, as do the next five.")
    encoder_layers: int | None = Field(None, description="Layers of the encoder.")
    decoder_layers: int | None = Field(None, description="Layers of the decoder.")
    heads: int | None = Field(None, description="Attention heads.")
    ffn_size: int | None = Field(None, description="Inner size of the feed-forward networks.")


class TrainSettings(ModelChoices, DataSettings):
    """Trains a Transformer on parallel text, or scores a trained one (--evaluate)."""

    short_help: ClassVar[tuple[str, ...]] = (
        *("train", "valid", "output", "source_language", "target_language", "source_vocabulary_size"),
        *("target_vocabulary_size", "init", "preset", "max_tokens", "device", "max_epochs", "resume"),
        *("evaluate", "test"),
    )

    value_size: Annotated[int | None, Flag(heading="attention")] = Field(
        None, description="Size of a head's values; head-size unless given."
    )

    max_tokens: Annotated[int, Flag(heading="optimisation")] = Field(
        4096, ge=1, description="Largest batch: rows times the longest side, in pieces."
    )
    learning_rate: float = Field(1e-3, gt=0, description="Peak rate, reached at the end of the warm-up.")
    warmup_steps: int = Field(1000, ge=0, description="Steps of linear warm-up before the inverse square root.")
    cooldown_steps: int = Field(
        0, ge=0, description="At the end of --max-steps, fall linearly to zero in so many steps."
    )
    adam_beta1: float = Field(0.9, ge=0, lt=1, description="Adam's decay of the mean gradient.")
    adam_beta2: float = Field(0.98, ge=0, lt=1, description="Adam's decay of the squared gradient.")
    weight_decay: float = Field(0.0, ge=0, description="Decoupled weight decay.")
    clip_norm: float = Field(1.0, ge=0, description="Largest gradient norm; 0 turns clipping off.")
    label_smoothing: float = Field(0.1, ge=0, lt=1, description="Probability spread over all pieces.")
    precision: Literal["auto", "bf16", "fp32"] = Field(
        "auto", description="bf16 autocast or fp32; auto takes bf16 where the hardware has it."
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="Device to train on; auto takes a GPU where there is one."
    )
    threads: int = Field(0, ge=0, le=1024, description="CPU threads; 0 leaves PyTorch's choice.")
    seed: int = Field(1, ge=0, lt=2**32, description="Seed of everything random.")

    max_epochs: Annotated[int, Flag(heading="ending, validation and checkpoints")] = Field(
        0, ge=0, description="Stop after so many passes; 0 is no limit."
    )
    max_steps: int = Field(0, ge=0, description="Stop after so many updates; 0 is no limit.")
    max_minutes: Annotated[float, Flag("MINUTES")] = Field(
        0.0,
        ge=0,
        description="End within this wall time, resumed parts and validation included, or with the first validation;"
        " 0 is no limit.",
    )
    patience: int = Field(10, ge=0, description="Stop after so many validations without a better BLEU; 0 is never.")
    valid_every: int = Field(500, ge=1, description="Steps between validations, each with a checkpoint.")
    average: int = Field(5, ge=1, description="Average the weights of so many last checkpoints.")
    resume: bool = Field(False, description="Continue the run in the output folder where there is one.")

    log_every: Annotated[int, Flag(heading="history of the run")] = Field(
        50, ge=1, description="Steps between two records of the history, each an average over them."
    )
    tensorboard: bool = Field(False, description="Write event files for TensorBoard; needs the extra tensorboard.")

    evaluate: Annotated[Path | None, Flag("FOLDER", heading="evaluation instead of training")] = Field(
        None, description="Score this checkpoint folder on --test instead of training."
    )
    test: Annotated[Path | None, Flag("FILE")] = Field(None, description="Parallel text to score on.")
    output_translations: Annotated[Path | None, Flag("FILE")] = Field(
        None, description="Write the translations of --test here, one a line."
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        needed = ("test",) if self.evaluate else ("train", "valid", "output")
        missing = [flag_name(type(self), name) for name in needed if getattr(self, name) is None]
        if missing:
            raise ValueError(f"{' and '.join(missing)} must be given")
        self._check_together()
        for name in () if self.evaluate else ("source_language", "target_language"):
            if not is_tag(getattr(self, name)) and (getattr(self, name) or not self.init):
                raise ValueError(f"{flag_name(type(self), name)}: must be given as a BCP-47 tag, such as en or zh-Hans")
        for name in ("source_normalization", "target_normalization"):
            if getattr(self, name) not in NORMALIZATIONS:
                raise ValueError(
                    f"{flag_name(type(self), name)}: {getattr(self, name)!r} is not one of {', '.join(NORMALIZATIONS)}"
                )
        if self.cooldown_steps > self.max_steps:
            raise ValueError("--cooldown-steps: the cool-down must fit into --max-steps, which says when it ends")
        if self.init:
            return self  # the checkpoint has the vocabularies and the sizes
        if self.sampling_alpha and self.vocabulary != "unigram":
            raise ValueError(f"--sampling-alpha: a {self.vocabulary} vocabulary knows one segmentation of a text only")
        if self.joint_vocabulary and self.source_normalization != self.target_normalization:
            raise ValueError("--joint-vocabulary: both sides need the same normalization")
        if self.tie_embeddings == "three-way" and not self.joint_vocabulary:
            raise ValueError("--tie-embeddings three-way: needs --joint-vocabulary")
        for name, other in _NEEDED.items():
            flag, _, value = other.partition(" ")
            chosen = getattr(self, flag.removeprefix("--").replace("-", "_"))
            if name in self.model_fields_set and not (chosen == value if value else chosen):
                raise ValueError(f"{flag_name(type(self), name)}: has no effect without {other}")
        try:
            self.transformer_config(source_size=100, target_size=100)  # its own checks, before any work is done
        except ValueError as error:
            raise ValueError(in_flags(type(self), str(error))) from None
        return self

    def _check_together(self) -> None:
        """Refuse settings that would have no effect beside the others."""
        if self.output_translations and not self.evaluate:
            raise ValueError("--output-translations: needs --evaluate")
        for name in _KEPT_BY_INIT:
            if self.init and name in self.model_fields_set:
                raise ValueError(f"{flag_name(type(self), name)}: --init keeps the checkpoint's; leave it out")

    def transformer_config(self, *, source_size: int, target_size: int) -> TransformerConfig:
        """Return the model's config: the preset, overridden by what is set. Raises ValueError naming the field."""
        names = TransformerConfig.model_fields.keys() & type(self).model_fields.keys()
        chosen = {name: value for name in names if (value := getattr(self, name)) is not None}
        return TransformerConfig(
            source_vocab_size=source_size, target_vocab_size=target_size, **(PRESETS[self.preset] | chosen)
        )


def in_flags(cls: type[Settings], sentence: str) -> str:
    """Return a sentence about fields of `TransformerConfig`, which begins with one, with the flags of `cls`."""
    field, _, problem = sentence.partition(":")

    def flag(name: str) -> str:
        return flag_name(cls, name) if name in cls.model_fields else name

    return f"{flag(field)}:{re.sub('[a-z]+(?:_[a-z]+)+', lambda match: flag(match[0]), problem)}"
