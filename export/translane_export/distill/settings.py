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

    teacher: Annotated[Path, Flag(positional=True)]
    """Folder of a model bundle, or of any checkpoint that translane export reads."""
    train: Annotated[Path, Flag("FILE")]
    """Text whose sources the teacher translates: TSV, gzipped when it ends in .gz."""
    output: Annotated[Path, Flag("FOLDER", short="-o")]
    """Folder for the teacher's translations, the new text and the student's settings."""
    source_column: int = Field(0, ge=0)
    """Column of the source side, from 0."""
    target_column: int = Field(1, ge=0)
    """Column of the target side, which --nbest and --with-references read."""
    bad_lines: BadLines = "refuse"
    """What to do with lines that hold no usable pair."""
    source_language: Annotated[str, Flag("TAG")] = ""
    """Language of the sources, for a teacher of several."""
    target_language: Annotated[str, Flag("TAG")] = ""
    """Language to translate to, for a teacher of several."""
    resume: bool = False
    """Go on with the run in the output folder."""

    beam_size: Annotated[int, Flag(heading="the teacher's translations")] = Field(4, ge=1, le=64)
    """Number of beams; 1 is greedy search."""
    length_penalty: float = Field(1.0, ge=-10, le=10)
    """Exponent of the length by which beams are ranked."""
    nbest: int = Field(1, ge=1, le=64)
    """Of so many best translations, take the one closest to the target side."""
    max_batch_size: int | None = Field(None, ge=1, le=4096)
    """Hypotheses that decode at once; by default as translane batch has it."""
    threads: int | None = Field(None, ge=1, le=1024)
    """CPUs to compute on, a replica on each; by default those granted."""

    max_length: Annotated[int, Flag(heading="the new text")] = Field(128, ge=1, le=65536)
    """Longest side in the teacher's pieces; longer pairs are left out."""
    max_ratio: float = Field(5.0, ge=1)
    """How many times as many pieces one side may have as the other."""
    with_references: bool = False
    """Add the text's own pairs to the new text."""

    encoder_layers: Annotated[int | None, Flag(heading="the student")] = Field(None, ge=1, le=256)
    """Layers of the encoder; as many as the teacher's unless given."""
    decoder_layers: int = Field(1, ge=1, le=256)
    """Layers of the decoder."""
    d_model: int | None = Field(None, ge=1, le=65536)
    """Model size; the teacher's unless given."""
    heads: int | None = Field(None, ge=1, le=1024)
    """Attention heads; the teacher's unless given."""
    ffn_size: int | None = Field(None, ge=1, le=1 << 20)
    """Inner size of the feed-forward networks; the teacher's unless given."""
    from_teacher: bool = True
    """Start from the teacher's weights, where the student's sizes allow it."""
    seed: int = Field(1, ge=0, lt=2**32)
    """Seed of the weights that do not come from the teacher."""

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
