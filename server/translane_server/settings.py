"""The settings of the server. docs/server.md describes each setting; a test compares the two."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from translane_server.errors import SettingsError
from translane_server.manifest import Manifest
from translane_server.settings_loader import Flag, Settings

ENV_PREFIX = "TRANSLANE_"

# Default limit of source and target lengths [tokens]. A larger capacity of the rows costs memory, and space in the
# processor's caches, even if all sentences are short.
_DEFAULT_MAX_TOKENS = 256

# Default number of rows: of all replicas together, or of each replica if that gives more.
_DEFAULT_ROWS, _DEFAULT_ROWS_OF_A_REPLICA = 64, 32

# Default limit of the beam size. A text with many beams makes many other texts wait.
_DEFAULT_MAX_BEAM_SIZE = 16

# Largest count that the protocol can represent.
_MAX_COUNT = 2**31 - 1


class ServerSettings(Settings):
    """Serves translations of a model bundle over gRPC."""

    model: Annotated[Path, Flag("FOLDER")] = Field(description="Folder of the model bundle to serve.")
    host: Annotated[str, Flag("HOST", heading="addresses")] = Field(
        default="127.0.0.1",
        min_length=1,
        description="Address or name to listen on, for gRPC and metrics; 0.0.0.0 is every IPv4 interface.",
    )
    port: Annotated[int, Flag("PORT")] = Field(
        default=50051, ge=0, le=65535, description="gRPC port; 0 takes a free one."
    )
    metrics_port: Annotated[int, Flag("PORT")] = Field(
        default=9400, ge=0, le=65535, description="Prometheus port; 0 takes a free one."
    )
    device: Annotated[Literal["auto", "cpu", "cuda"], Flag(heading="decoding")] = Field(
        default="auto", description="What runs the model; auto is cuda where a GPU can run it, else cpu."
    )
    replicas: int | None = Field(
        default=None,
        ge=1,
        le=1024,
        description="Replicas of the model, with a batch each; by default one, or one on each CPU for a small model.",
    )
    threads: int | None = Field(
        default=None, ge=1, le=1024, description="Threads of each replica; by default its part of the CPUs granted."
    )
    rows: int | None = Field(
        default=None,
        ge=1,
        le=4096,
        description="Most hypotheses that decode at once, in all replicas together; by default 64, or 32 for each.",
    )
    encode_tokens: int = Field(
        default=2048,
        ge=1,
        le=_MAX_COUNT,
        description="Source tokens, padding included, that a replica encodes between two of its decoder steps.",
    )
    max_beam_size: Annotated[int | None, Flag(heading="limits")] = Field(
        default=None,
        ge=1,
        le=4096,
        description="Most beams and hypotheses of a text; by default 16, or a replica's rows if fewer.",
    )
    max_source_tokens: int | None = Field(
        default=None,
        ge=2,
        le=_MAX_COUNT,
        description="Longest source text [tokens]; by default the model's limit, 256 at most.",
    )
    max_target_tokens: int | None = Field(
        default=None,
        ge=1,
        le=_MAX_COUNT,
        description="Longest translation [tokens]; by default the model's limit, 256 at most.",
    )
    texts_per_request: int = Field(default=256, ge=1, le=_MAX_COUNT, description="Most texts of a request.")
    sentences_waiting: int = Field(
        default=1024, ge=1, le=_MAX_COUNT, description="Most sentences that wait for a row; more are refused."
    )
    max_message_bytes: Annotated[int, Flag("BYTES")] = Field(
        default=4 * 1024 * 1024, ge=1024, le=2**31 - 1, description="Largest request message [bytes]."
    )
    grace_period: Annotated[float, Flag("SECONDS", heading="operation")] = Field(
        default=30.0, ge=0, le=86400, description="Seconds that running requests get to finish after SIGTERM."
    )
    reflection: bool = Field(default=True, description="Answer gRPC server reflection.")
    log_format: Annotated[Literal["plain", "json"], Flag(heading="log")] = Field(
        default="plain", description="Shape of the log's lines."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least severe level to log; debug has a line for each request."
    )
    log_texts: bool = Field(default=False, description="Log the texts of requests and their translations (at debug).")

    @field_validator("host")
    @classmethod
    def _without_brackets(cls, host: str) -> str:
        return host[1:-1] if host.startswith("[") and host.endswith("]") else host

    @model_validator(mode="after")
    def _a_full_request_can_wait(self) -> ServerSettings:
        if self.sentences_waiting < self.texts_per_request:
            raise ValueError(
                f"--sentences-waiting ({self.sentences_waiting}) must be at least --texts-per-request"
                f" ({self.texts_per_request}), or a request of that many texts could never be accepted"
            )
        return self

    @model_validator(mode="after")
    def _beams_have_rows(self) -> ServerSettings:
        replicas, rows = self.replicas or 1, self.rows_of(self.replicas or 1)
        if replicas > rows:
            raise ValueError(f"--replicas ({replicas}) must be at most --rows ({rows}), or one would have no row")
        if self.max_beam_size is not None and self.max_beam_size > rows // replicas:
            divided = f" / --replicas ({replicas})" if replicas > 1 else ""
            raise ValueError(
                f"--max-beam-size ({self.max_beam_size}) must be at most --rows ({rows}){divided}: a beam takes a row"
            )
        return self

    def rows_of(self, replicas: int) -> int:
        """The setting `rows`, or its default for this number of replicas."""
        return self.rows or max(_DEFAULT_ROWS, _DEFAULT_ROWS_OF_A_REPLICA * replicas)

    @property
    def beam_limit(self) -> int:
        """The setting `max_beam_size`, or its default for the number of rows."""
        replicas = self.replicas or 1
        return self.max_beam_size or min(_DEFAULT_MAX_BEAM_SIZE, self.rows_of(replicas) // replicas)


@dataclass(frozen=True)
class TokenLimits:
    """Longest source and target, and the default of `max_length` [tokens, with the end-of-sentence token]."""

    source: int
    target: int
    default_max_length: int


def token_limits(settings: ServerSettings, manifest: Manifest) -> TokenLimits:
    """The limits that both `settings` and the model allow.

    Raises:
        SettingsError: a setting exceeds the limit of the model.
    """
    source = _limit("--max-source-tokens", settings.max_source_tokens, manifest.limits.source_tokens)
    target = _limit("--max-target-tokens", settings.max_target_tokens, manifest.limits.target_tokens)
    return TokenLimits(source, target, min(manifest.decoding_defaults.max_length, target))


def _limit(flag: str, asked: int | None, possible: int) -> int:
    if asked is None:
        return min(possible, _DEFAULT_MAX_TOKENS)
    if asked > possible:
        raise SettingsError(f"{flag} is {asked}, and the model takes {possible} at most")
    return asked
