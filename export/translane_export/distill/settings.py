"""The settings of `translane distill`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from translane_export.train.data import BadLines
from translane_server.settings.loader import Flag, Settings

ENV_PREFIX = "TRANSLANE_DISTILL_"


class DistillSettings(Settings):
    """Writes what a teacher makes of the source side of a text, and the settings for a smaller student."""

    teacher: Annotated[Path, Flag(positional=True)] = Field(
        description="Folder of a model bundle, or of any checkpoint that translane export reads."
    )
    train: Annotated[Path, Flag("FILE")] = Field(
        description="Text whose sources the teacher translates: TSV, gzipped when it ends in .gz."
    )
    output: Annotated[Path, Flag("FOLDER", short="-o")] = Field(
        description="Folder for the teacher's translations, the new text and the student's settings."
    )
    source_column: int = Field(default=0, ge=0, description="Column of the source side, from 0.")
    target_column: int = Field(
        default=1, ge=0, description="Column of the target side, which --nbest and --with-references read."
    )
    bad_lines: BadLines = Field(default="refuse", description="What to do with lines that hold no usable pair.")
    source_language: Annotated[str, Flag("TAG")] = Field(
        default="", description="Language of the sources, for a teacher of several."
    )
    target_language: Annotated[str, Flag("TAG")] = Field(
        default="", description="Language to translate to, for a teacher of several."
    )
    resume: bool = Field(default=False, description="Go on with the run in the output folder.")

    beam_size: Annotated[int, Flag(heading="the teacher's translations")] = Field(
        default=4, ge=1, le=64, description="Number of beams; 1 is greedy search."
    )
    length_penalty: float = Field(
        default=1.0, ge=-10, le=10, description="Exponent of the length by which beams are ranked."
    )
    nbest: int = Field(
        default=1, ge=1, le=64, description="Of so many best translations, take the one closest to the target side."
    )
    max_batch_size: int | None = Field(
        default=None, ge=1, le=4096, description="Hypotheses that decode at once; by default as translane batch has it."
    )
    threads: int | None = Field(
        default=None, ge=1, le=1024, description="CPUs to compute on, a replica on each; by default those granted."
    )

    max_length: Annotated[int, Flag(heading="the new text")] = Field(
        default=128, ge=1, le=65536, description="Longest side in the teacher's pieces; longer pairs are left out."
    )
    max_ratio: float = Field(
        default=5.0, ge=1, description="How many times as many pieces one side may have as the other."
    )
    with_references: bool = Field(default=False, description="Add the text's own pairs to the new text.")

    encoder_layers: Annotated[int | None, Flag(heading="the student")] = Field(
        default=None, ge=1, le=256, description="Layers of the encoder; as many as the teacher's unless given."
    )
    decoder_layers: int = Field(default=1, ge=1, le=256, description="Layers of the decoder.")
    d_model: int | None = Field(default=None, ge=1, le=65536, description="Model size; the teacher's unless given.")
    heads: int | None = Field(default=None, ge=1, le=1024, description="Attention heads; the teacher's unless given.")
    ffn_size: int | None = Field(
        default=None,
        ge=1,
        le=1 << 20,
        description="Inner size of the feed-forward networks; the teacher's unless given.",
    )
    from_teacher: bool = Field(
        default=True, description="Start from the teacher's weights, where the student's sizes allow it."
    )
    seed: int = Field(default=1, ge=0, lt=2**32, description="Seed of the weights that do not come from the teacher.")

    @property
    def reads_targets(self) -> bool:
        """Whether the text's target side is needed."""
        return self.nbest > 1 or self.with_references

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.nbest > self.beam_size:
            raise ValueError(
                f"--nbest: {self.nbest} translations need as many beams, and --beam-size is {self.beam_size}"
            )
        return self
