"""The settings of `translane explain`. docs/explain.md describes each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from translane_server.core.cpus import available_cpus
from translane_server.settings.loader import Flag, Settings

ENV_PREFIX = "TRANSLANE_EXPLAIN_"


class ExplainSettings(Settings):
    """Shows what a bundle's model does with one sentence: attention, positions, operators and shapes."""

    bundle: Annotated[Path, Flag(positional=True)] = Field(description="Folder of a model bundle with ONNX graphs.")
    text: Annotated[str, Flag(positional=True)] = Field(min_length=1, description="The sentence to translate.")
    output: Annotated[Path, Flag("FOLDER", short="-o")] = Field(
        description="Folder to write the page to; it appears once it is complete."
    )
    force: bool = Field(default=False, description="Replace an earlier output of this command.")
    threads: int | None = Field(
        default=None, ge=1, le=1024, description="Threads to compute with; by default the CPUs granted."
    )
    beam_size: Annotated[int, Flag(heading="translation")] = Field(
        default=1, ge=1, le=64, description="Number of beams; 1 is greedy search."
    )
    max_length: int | None = Field(
        default=None, ge=1, description="Longest translation [tokens]; by default the bundle's default."
    )
    source_language: Annotated[str, Flag("TAG")] = Field(
        default="", description="Language of the text, for a model of several."
    )
    target_language: Annotated[str, Flag("TAG")] = Field(
        default="", description="Language to translate to, for a model of several."
    )

    @property
    def computing_threads(self) -> int:
        """Threads of PyTorch and of ONNX Runtime."""
        return self.threads or available_cpus()
