"""The settings of `translane-plan measure` and `translane-plan size`. docs/scaling.md describes them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from translane_server.model_places import read_folder
from translane_server.settings_loader import Flag, Settings

MEASURE_PREFIX = "TRANSLANE_PLAN_MEASURE_"
SIZE_PREFIX = "TRANSLANE_PLAN_SIZE_"

_UNITS = {"ms": 1e-3, "s": 1.0, "": 1.0}


def _seconds(value: object) -> object:
    """Read a time such as 500ms or 0.5s; a bare number is seconds."""
    if not isinstance(value, str):
        return value
    found = re.fullmatch(r"\s*([0-9.eE+-]+)\s*(ms|s|)\s*", value)
    try:
        return float(found[1]) * _UNITS[found[2]] if found else float(value)
    except ValueError:
        raise ValueError("a time such as 500ms or 0.5s is needed") from None


class MeasureSettings(Settings):
    """Measures what sentences of a model cost on this machine, with the server's own engine."""

    bundle: Annotated[Path, BeforeValidator(read_folder), Flag(positional=True, unquoted=True)] = Field(
        description="Folder of a model bundle."
    )
    output: Annotated[Path, Flag("FILE", short="-o")] = Field(description="File to write the profile to, as JSON.")
    threads: int = Field(default=1, ge=1, le=1024, description="Threads of a replica.")
    device: Literal["auto", "cpu", "cuda"] = Field(default="auto", description="What runs the model.")
    texts: Annotated[Path | None, Flag("FILE")] = Field(
        default=None,
        description="Texts like those to plan for, one on each line; by default some everyday sentences.",
    )
    source_language: Annotated[str, Flag("TAG")] = Field(
        default="", max_length=100, description="Language of the texts, for a model of several."
    )
    target_language: Annotated[str, Flag("TAG")] = Field(
        default="", max_length=100, description="Language to translate to, for a model of several."
    )
    seconds: Annotated[float, Flag("SECONDS")] = Field(
        default=60.0, ge=5, le=110, description="How long to measure, beside the starts of the model."
    )


class SizeSettings(Settings):
    """Finds machines for a rate and a latency, the rate that machines keep, or the latency that they have."""

    profile: Annotated[Path, Flag(positional=True)] = Field(description="File that translane-plan measure has written.")
    rate: Annotated[float | None, Flag("R", heading="what is known: two of these, or all three")] = Field(
        default=None, gt=0, le=1e9, description="Sentences per second."
    )
    p95: Annotated[float | None, BeforeValidator(_seconds), Flag("TIME")] = Field(
        default=None, gt=0, le=3600, description="Latency that 95% of the requests stay within, such as 500ms."
    )
    machines: int | None = Field(default=None, ge=1, le=1_000_000, description="Number of machines.")

    lengths: Annotated[str, Flag("FILE|MEAN", heading="requests")] = Field(
        default="",
        max_length=4096,
        description="Lengths of sentences: a file with source and target tokens on each line; or the mean number of"
        " source tokens, to which the profile's lengths are scaled; by default the profile's.",
    )
    texts_per_request: int = Field(default=1, ge=1, le=4096, description="Sentences in each request.")

    cores: Annotated[int, Flag(heading="each machine")] = Field(
        default=8, ge=1, le=1024, description="Cores that the server gets."
    )
    front_ends: int | None = Field(
        default=None,
        ge=1,
        le=64,
        description="The server's --front-ends; by default as many as suit the requests.",
    )
    replicas: int | None = Field(
        default=None, ge=1, le=1024, description="The server's --replicas; by default the server's default."
    )
    rows: int | None = Field(
        default=None, ge=1, le=4096, description="The server's --rows; by default the server's default."
    )

    requests: Annotated[int, Flag(heading="the simulation")] = Field(
        default=20_000, ge=100, le=1_000_000, description="Requests of a simulation; some simulations take more."
    )
    seed: int = Field(default=0, ge=0, lt=2**32, description="The same seed gives the same plan.")
    format: Literal["text", "json"] = Field(default="text", description="What to print the plan as.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if [self.rate, self.p95, self.machines].count(None) > 1:
            raise ValueError("two of --rate, --p95 and --machines are needed; the third one is found")
        return self
