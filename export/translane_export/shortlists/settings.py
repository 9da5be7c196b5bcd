"""The settings of `translane shortlist`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from translane_server.settings.loader import Flag, Settings

ENV_PREFIX = "TRANSLANE_SHORTLIST_"


class ShortlistSettings(Settings):
    """Finds which target pieces translate each source piece, from parallel text, for `translane export --shortlist`."""

    checkpoint: Annotated[Path, Flag(positional=True)] = Field(
        description="Folder of the checkpoint or bundle whose pieces are meant."
    )
    text: Annotated[Path, Flag("FILE")] = Field(description="Parallel text (TSV of source and target, gzipped or not).")
    output: Annotated[Path, Flag("FILE", short="-o")] = Field(
        description="File to write the rules to, in the format of CTranslate2's vmap."
    )
    force: bool = Field(default=False, description="Replace the file that is there.")
    always: int = Field(
        default=500, ge=1, le=1_000_000, description="Most frequent target pieces, which every translation may use."
    )
    max_per_piece: int = Field(
        default=50, ge=1, le=10_000, description="Largest number of target pieces of a source piece."
    )
    min_probability: float = Field(
        default=0.001, ge=0, le=1, description="Least probability of a target piece, given the source piece."
    )
    iterations: int = Field(default=5, ge=1, le=100, description="Iterations of expectation maximization.")
    max_pairs: int = Field(
        default=1_000_000, ge=1, le=100_000_000, description="Sentence pairs to read, the first ones of the file."
    )
    source_language: Annotated[str, Flag("TAG")] = Field(
        default="", description="Language of the source texts, for a model of several."
    )
    target_language: Annotated[str, Flag("TAG")] = Field(
        default="", description="Language of the target texts, for a model of several."
    )
