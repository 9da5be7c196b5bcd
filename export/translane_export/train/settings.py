"""The settings of a training run. docs/training.md describes each; a test keeps the two the same."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from translane_export.model.config import PRESETS, Activation, NormPlacement, PositionKind, TransformerConfig, Tying
from translane_export.normalization import NORMALIZATIONS
from translane_export.train.data import BadLines
from translane_export.train.vocabulary import VocabularyKind
from translane_server.settings import Settings, flag_name

ENV_PREFIX = "TRANSLANE_TRAIN_"
_LANGUAGE = re.compile(r"[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*")


class TrainSettings(Settings):
    """Trains a Transformer on parallel text, or scores a trained one (--evaluate)."""

    # Data
    train: Path | None = Field(None, description="parallel text to train on: TSV, gzipped when it ends in .gz")
    valid: Path | None = Field(None, description="parallel text for validation BLEU")
    output: Path | None = Field(None, description="folder of the run: checkpoints and the state to resume from")
    source_column: int = Field(0, ge=0, description="column of the source side, from 0")
    target_column: int = Field(1, ge=0, description="column of the target side, from 0")
    source_language: str = Field("", description="BCP-47 tag of the source language, written into the checkpoint")
    target_language: str = Field("", description="BCP-47 tag of the target language")
    data_licence: str = Field("", description="licence and attribution of the data, written into the checkpoint")
    bad_lines: BadLines = Field("refuse", description="what to do with lines that hold no usable pair")
    max_length: int = Field(128, ge=1, description="longest side in pieces; longer pairs are left out of training")

    # Vocabulary
    vocabulary: VocabularyKind = Field("unigram", description="kind of SentencePiece model")
    joint_vocabulary: bool = Field(False, description="one vocabulary for both sides, of source-vocabulary-size pieces")
    source_vocabulary_size: int = Field(8000, ge=5, description="pieces on the source side, special ones included")
    target_vocabulary_size: int = Field(8000, ge=5, description="pieces on the target side, special ones included")
    source_normalization: str = Field("nmt_nfkc", description=f"one of {', '.join(NORMALIZATIONS)}")
    target_normalization: str = Field("nmt_nfkc", description="as for the source")
    character_coverage: float = Field(1.0, gt=0, le=1, description="share of the training text's characters to keep")
    sampling_alpha: float = Field(0.0, ge=0, description="subword sampling in training (unigram only); 0 turns it off")
    sampling_nbest: int = Field(16, ge=2, description="best segmentations of a sentence to draw from")

    # Model
    preset: Literal["base", "small", "tiny"] = Field("small", description="sizes to start from")
    d_model: int | None = Field(None, description="overrides the preset, as do the next four")
    encoder_layers: int | None = Field(None, description="layers of the encoder")
    decoder_layers: int | None = Field(None, description="layers of the decoder")
    heads: int | None = Field(None, description="attention heads")
    ffn_size: int | None = Field(None, description="inner size of the feed-forward networks")
    head_size: int | None = Field(None, description="size of a head; d-model / heads unless given")
    activation: Activation = Field("relu", description="of the feed-forward networks")
    norm: NormPlacement = Field("post", description="layer norm after (the paper) or before each sublayer")
    positions: PositionKind = Field("sinusoidal", description="kind of position vectors")
    max_positions: int = Field(512, ge=2, description="longest sequence the model takes")
    scale_embeddings: bool = Field(True, description="multiply embeddings by the square root of d-model")
    tie_embeddings: Tying = Field("two-way", description="share target embedding and output (and source: three-way)")
    dropout: float = Field(0.1, ge=0, lt=1, description="after embeddings and sublayers")
    attention_dropout: float = Field(0.0, ge=0, lt=1, description="on attention weights")
    activation_dropout: float = Field(0.0, ge=0, lt=1, description="inside the feed-forward networks")
    source_word_vectors: Path | None = Field(None, description="word2vec text file to start source embeddings from")
    target_word_vectors: Path | None = Field(None, description="word2vec text file to start target embeddings from")

    # Optimisation
    max_tokens: int = Field(4096, ge=1, description="largest batch: rows times the longest side, in pieces")
    learning_rate: float = Field(1e-3, gt=0, description="peak rate, reached at the end of the warm-up")
    warmup_steps: int = Field(1000, ge=0, description="steps of linear warm-up before the inverse square root")
    cooldown_steps: int = Field(
        0, ge=0, description="at the end of --max-steps, fall linearly to zero in so many steps"
    )
    adam_beta1: float = Field(0.9, ge=0, lt=1, description="Adam's decay of the mean gradient")
    adam_beta2: float = Field(0.98, ge=0, lt=1, description="Adam's decay of the squared gradient")
    weight_decay: float = Field(0.0, ge=0, description="decoupled weight decay")
    clip_norm: float = Field(1.0, ge=0, description="largest gradient norm; 0 turns clipping off")
    label_smoothing: float = Field(0.1, ge=0, lt=1, description="probability spread over all pieces")
    precision: Literal["auto", "bf16", "fp32"] = Field("auto", description="bf16 autocast; auto: where hardware has it")
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="auto takes a GPU where there is one")
    threads: int = Field(0, ge=0, description="CPU threads; 0 leaves PyTorch's choice")
    seed: int = Field(1, ge=0, description="of everything random")

    # Ending, validation, checkpoints
    max_epochs: int = Field(0, ge=0, description="stop after so many passes; 0 is no limit")
    max_steps: int = Field(0, ge=0, description="stop after so many updates; 0 is no limit")
    max_minutes: float = Field(0.0, ge=0, description="stop after this wall time, resumed parts included; 0: no limit")
    patience: int = Field(10, ge=0, description="stop after so many validations without a better BLEU; 0: never")
    valid_every: int = Field(500, ge=1, description="steps between validations, each with a checkpoint")
    average: int = Field(5, ge=1, description="average the weights of so many last checkpoints")
    resume: bool = Field(False, description="continue the run in the output folder where there is one")

    # Evaluation instead of training
    evaluate: Path | None = Field(None, description="score this checkpoint folder on --test instead of training")
    test: Path | None = Field(None, description="parallel text for --evaluate")

    @model_validator(mode="after")
    def _check(self) -> Self:
        needed = ("test",) if self.evaluate else ("train", "valid", "output")
        missing = [flag_name(type(self), name) for name in needed if getattr(self, name) is None]
        if missing:
            raise ValueError(f"{' and '.join(missing)} must be given")
        for name in () if self.evaluate else ("source_language", "target_language"):
            if not _LANGUAGE.fullmatch(getattr(self, name)):
                raise ValueError(f"{flag_name(type(self), name)}: must be given as a BCP-47 tag, such as en or zh-Hans")
        for name in ("source_normalization", "target_normalization"):
            if getattr(self, name) not in NORMALIZATIONS:
                raise ValueError(
                    f"{flag_name(type(self), name)}: {getattr(self, name)!r} is not one of {', '.join(NORMALIZATIONS)}"
                )
        if self.sampling_alpha and self.vocabulary != "unigram":
            raise ValueError(f"--sampling-alpha: a {self.vocabulary} vocabulary knows one segmentation of a text only")
        if self.cooldown_steps > self.max_steps:
            raise ValueError("--cooldown-steps: the cool-down must fit into --max-steps, which says when it ends")
        if self.joint_vocabulary and self.source_normalization != self.target_normalization:
            raise ValueError("--joint-vocabulary: both sides need the same normalization")
        if self.tie_embeddings == "three-way" and not self.joint_vocabulary:
            raise ValueError("--tie-embeddings three-way: needs --joint-vocabulary")
        self.transformer_config(source_size=100, target_size=100)  # its own checks, before any work is done
        return self

    def transformer_config(self, *, source_size: int, target_size: int) -> TransformerConfig:
        """Return the model's config: the preset, overridden by what is set. Raises ValueError naming the field."""
        sizes = dict(PRESETS[self.preset])
        for name in ("d_model", "encoder_layers", "decoder_layers", "heads", "ffn_size", "head_size"):
            if getattr(self, name) is not None:
                sizes[name] = getattr(self, name)
        return TransformerConfig(
            source_vocab_size=source_size,
            target_vocab_size=target_size,
            activation=self.activation,
            norm=self.norm,
            positions=self.positions,
            max_positions=self.max_positions,
            scale_embeddings=self.scale_embeddings,
            tie_embeddings=self.tie_embeddings,
            dropout=self.dropout,
            attention_dropout=self.attention_dropout,
            activation_dropout=self.activation_dropout,
            **sizes,
        )
