"""The settings of the server. scripts/generate-docs makes the lists of docs/server.md of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from translane.arguments import hint
from translane_server.bundle.manifest import MODEL_NAME
from translane_server.settings.loader import Flag, Settings, first_problem, flag_name
from translane_server.settings.model_sources import (
    BUNDLED_MODEL_URL,
    ModelPlace,
    RemotePlace,
    open_url,
    read_folder,
    read_places,
)

ENV_PREFIX = "TRANSLANE_"

# Default number of rows: of all replicas together, or of each replica if that gives more.
_DEFAULT_ROWS, _DEFAULT_ROWS_OF_A_REPLICA = 64, 32

# Default limit of the beam size. A text with many beams makes many other texts wait.
_DEFAULT_MAX_BEAM_SIZE = 16

# Largest count that the protocol can represent.
_MAX_COUNT = 2**31 - 1

# The origin of a web page, as browsers send it.
_ORIGIN = re.compile(r"\*|https?://[0-9a-z.\-\[\]:]{1,260}")

# Kinds of settings.
_Count = Annotated[int, Field(ge=1, le=_MAX_COUNT)]
_Port = Annotated[int, Flag("PORT"), Field(ge=0, le=65535)]
_PortOrNone = Annotated[int | None, Flag("PORT"), Field(ge=0, le=65535)]
_File = Annotated[Path | None, Flag("FILE")]
_Folder = Annotated[Path | None, Flag("FOLDER")]

_PORTS = ("port", "metrics_port", "http_port", "health_port", "admin_port")


def _origin(text: str) -> str:
    if text and not _ORIGIN.fullmatch(text):
        raise ValueError("an origin is https://HOST, http://HOST:PORT or *, without a path")
    return text


# The settings that the table of a model may change for that model.
PER_MODEL = (
    *("device", "model_version", "strict_reload", "replicas", "threads", "max_batch_size", "max_beam_size"),
    *("max_source_tokens", "max_target_tokens", "max_queue_size", "decoding_defaults", "cache_bytes"),
)


class ServerSettings(Settings):
    """Serves translations of model bundles over gRPC."""

    short_help: ClassVar[tuple[str, ...]] = (
        *("models", "host", "port", "metrics_port", "http_port", "tls_cert", "tls_key", "keys_file"),
        *("device", "replicas", "threads", "max_batch_size", "check", "log_level"),
    )

    model: Annotated[
        tuple[ModelPlace | RemotePlace, ...] | None,
        BeforeValidator(read_places),
        Flag("MODEL", separator=f",(?={MODEL_NAME}=)", positional=True, heading="models", unquoted=True),
    ] = None
    """Models to serve: folders, URLs, names on the Hugging Face Hub, models of Firefox such as firefox:de-en, or zh-en;
    NAME=… gives one another name."""
    models: Annotated[Path | None, BeforeValidator(read_folder), Flag("FOLDER", unquoted=True)] = None
    """Folder of models to serve: each folder in it is a model of that name."""
    model_cache: _Folder = None
    """Folder of the bundles that were downloaded or exported; by default in the user's cache folder."""
    firefox_models: Annotated[str | None, Flag("URL")] = None
    """List of Firefox's models: Mozilla's, another collection of Remote Settings, a .json file, or its folder."""
    model_cache_bytes: Annotated[int, Flag("BYTES"), Field(ge=1, le=2**50)] = 32 * 1024**3
    """Most bytes in the model cache; what is new takes the place of what nobody uses [bytes]."""
    bundled_model: Annotated[str, Flag("URL", unquoted=True), AfterValidator(open_url)] = BUNDLED_MODEL_URL
    """URL that the model zh-en is downloaded from, where there is no clone that has it."""
    model_version: Annotated[str, Flag("VERSION"), Field(max_length=255)] = ""
    """Version to serve: the name of its folder; by default the highest one that is good."""
    strict_reload: bool = False
    """Refuse a new version that translates less, or that has other files under the same name; by default the log warns
    of it."""
    ready: Literal["all", "any"] = "all"
    """Whether the server is ready when all models are, or when any one is."""
    pivot: bool = True
    """Translate through a third language, with two models, where no model has a pair."""
    idle_timeout: Annotated[float, Flag("SECONDS"), Field(ge=0, le=31_536_000)] = 0.0
    """Seconds without a request after which a model is unloaded, until its next request; 0 is never."""
    glossaries: _Folder = None
    """Folder of glossaries, which requests name: files NAME.SOURCE.TARGET.tsv."""
    host: Annotated[str, Flag("HOST", heading="addresses"), Field(min_length=1)] = "127.0.0.1"
    """Address or name to listen on; 0.0.0.0 is every IPv4 interface."""
    port: _Port = 50051
    """gRPC port; 0 takes a free one."""
    metrics_port: _Port = 9400
    """Port of the metrics, for Prometheus; 0 takes a free one."""
    metrics_host: Annotated[str, Flag("HOST")] = ""
    """Address or name on which the metrics are; by default the one of --host."""
    admin_port: _PortOrNone = None
    """Port on 127.0.0.1 of ModelService, which loads, unloads and reloads models; 0 takes a free one; by default
    none."""
    http_port: _PortOrNone = None
    """Port of JSON over HTTP, for curl, and of a page to translate on; 0 takes a free one; see --page."""
    page: bool = True
    """Take port 8080 for the page, if it is free, where --host is this machine and --http-port is not set."""
    http_origins: Annotated[tuple[Annotated[str, AfterValidator(_origin)], ...], Flag("ORIGIN")] = ()
    """Origins whose web pages may call the HTTP port, such as https://example.org; * is every origin."""
    health_port: _PortOrNone = None
    """Port of health checks alone, without TLS and keys; 0 takes a free one; by default none."""
    tls_cert: Annotated[Path | None, Flag("FILE", heading="access")] = None
    """Certificate of the server, in PEM, with what leads to its authority: switches TLS on."""
    tls_key: _File = None
    """Private key of the certificate, in PEM, not encrypted."""
    tls_client_ca: _File = None
    """Authorities of callers' certificates, in PEM; callers without such a certificate are refused."""
    metrics_tls: bool = False
    """Use the certificates on the metrics port, too."""
    keys_file: _File = None
    """Keys of callers, as translane keys writes them; calls without a key are refused."""
    key_metrics: bool = False
    """Show in the metrics what each holder of a key asks for, by name."""
    device: Annotated[Literal["auto", "cpu", "cuda"], Flag(heading="decoding")] = "auto"
    """What runs the model; auto is cuda where a GPU can run it, else cpu."""
    replicas: Annotated[int | None, Field(ge=1, le=1024)] = None
    """Replicas of a model, with a batch each; by default one on each CPU, or one for a very large model."""
    threads: Annotated[int | None, Field(ge=1, le=1024)] = None
    """Threads of each replica; by default its part of the CPUs granted."""
    max_batch_size: Annotated[int | None, Field(ge=1, le=4096)] = None
    """Most hypotheses that decode at once, in all replicas together; by default 64, or more for many replicas."""
    replica_timeout: Annotated[float, Flag("SECONDS"), Field(ge=0, le=86400)] = 5.0
    """Seconds after which a replica that hangs is replaced; 0 waits for ever."""
    cache_bytes: Annotated[int, Flag("BYTES", heading="cache"), Field(ge=0, le=2**40)] = 0
    """Memory of each model's cache of translations [bytes]; 0 is no cache."""
    cache_shared: bool = False
    """Answer callers from the cache with translations of other callers, too."""
    max_beam_size: Annotated[int | None, Flag(heading="limits of a request"), Field(ge=1, le=4096)] = None
    """Most beams and hypotheses of a text; by default 16, or a replica's rows if fewer."""
    max_source_tokens: Annotated[int | None, Field(ge=2, le=_MAX_COUNT)] = None
    """Longest sentence of a source [tokens]; by default the model's limit, 256 at most."""
    max_target_tokens: Annotated[int | None, Field(ge=1, le=_MAX_COUNT)] = None
    """Longest translation of a sentence [tokens]; by default the model's limit, 256 at most."""
    decoding_defaults: bool = True
    """Take the bundle's search for requests that set no search; without, greedy search."""
    max_request_texts: _Count = 256
    """Most texts of a request."""
    max_queue_size: _Count = 1024
    """Most sentences that wait for a row; more are refused."""
    max_priority: Annotated[int, Field(ge=0, le=100)] = 0
    """Highest priority that counts between callers; a higher one counts as this one."""
    max_message_bytes: Annotated[int, Flag("BYTES"), Field(ge=1024, le=2**30)] = 1024 * 1024
    """Largest request message [bytes]."""
    message_timeout: Annotated[float, Flag("SECONDS"), Field(gt=0, le=86400)] = 10.0
    """Seconds in which the message of a call must come."""
    request_timeout: Annotated[float, Flag("SECONDS"), Field(gt=0, le=86400)] = 300.0
    """Seconds in which a call must be answered, whatever its deadline."""
    max_calls: Annotated[int, Flag(heading="limits of callers and connections"), Field(ge=1, le=2**20)] = 2048
    """Most calls that are open at once; more are refused."""
    max_bytes_in_flight: Annotated[int, Flag("BYTES"), Field(ge=1024, le=2**40)] = 16 * 1024 * 1024
    """Most bytes of the messages of all open calls; more are refused."""
    caller_share: Annotated[float, Flag("SHARE"), Field(gt=0, le=1)] = 0.5
    """Share of max_calls and max_bytes_in_flight that one caller may take."""
    caller_header: Annotated[str, Flag("KEY"), Field(pattern=r"^[0-9A-Za-z_.\-]{0,100}$")] = ""
    """Metadata key in which a proxy names the caller; by default the address is the caller."""
    max_streams: Annotated[int, Field(ge=1, le=2**20)] = 256
    """Most calls that a connection has open at once; more wait at the client."""
    max_connections: Annotated[int | None, Field(ge=1, le=2**20)] = None
    """Most connections; by default as many as the file descriptors allow, 4096 at most."""
    max_connection_idle: Annotated[float, Flag("SECONDS"), Field(gt=0, le=2000000)] = 300.0
    """Seconds without a call after which a connection is closed."""
    max_connection_age: Annotated[float, Flag("SECONDS"), Field(gt=0, le=2000000)] = 3600.0
    """Seconds after which a connection takes no new calls, and its client opens another one."""
    drain_delay: Annotated[float, Flag("SECONDS", heading="operation"), Field(ge=0, le=3600)] = 0.0
    """Seconds after SIGTERM in which the server says that it is not ready, and still answers new calls."""
    grace_period: Annotated[float, Flag("SECONDS"), Field(ge=0, le=86400)] = 30.0
    """Seconds that running requests get to finish after SIGTERM."""
    reflection: bool = True
    """Answer gRPC server reflection."""
    check: bool = False
    """Check settings, certificates, keys and models, tell what is found, and end."""
    log_format: Annotated[Literal["plain", "json"], Flag(heading="log")] = "plain"
    """Shape of the log's lines."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe level to log; info has a line for each call, and debug more of each."""
    log_texts: bool = False
    """Log the texts of requests and their translations (at debug), but none of documents."""
    model_settings: Annotated[Mapping[str, Mapping[str, Any]], Flag(in_file=True)] = {}
    """Settings of single models: a table of the file for each, such as [model_settings.zh-en]."""

    @field_validator("host", "metrics_host")
    @classmethod
    def _without_brackets(cls, host: str) -> str:
        return host[1:-1] if host.startswith("[") and host.endswith("]") else host

    @field_validator("http_origins")
    @classmethod
    def _without_empty_ones(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(origin for origin in origins if origin)

    @model_validator(mode="after")
    def _fit_together(self) -> ServerSettings:
        if not self.model and self.models is None:
            raise ValueError(
                "MODEL is required (or TRANSLANE_MODEL, or model in the settings file), or --models for a folder of"
                " models"
            )
        flags: dict[int, str] = {}
        for name in _PORTS:
            port, flag = getattr(self, name), flag_name(type(self), name)
            if port and flags.setdefault(port, flag) != flag:
                raise ValueError(f"{flags[port]} and {flag} are both {port}, and each needs a port of its own")
        if (self.tls_cert is None) != (self.tls_key is None):
            missing, given = ("--tls-cert", "--tls-key") if self.tls_cert is None else ("--tls-key", "--tls-cert")
            raise ValueError(f"{given} needs {missing}: TLS takes a certificate and its key")
        if self.tls_cert is None and (self.tls_client_ca or self.metrics_tls):
            name = "--tls-client-ca" if self.tls_client_ca else "--metrics-tls"
            raise ValueError(f"{name} needs --tls-cert and --tls-key")
        if self.max_bytes_in_flight * self.caller_share < self.max_message_bytes:
            raise ValueError(
                f"--max-bytes-in-flight ({self.max_bytes_in_flight}) times --caller-share ({self.caller_share:g})"
                f" must be at least --max-message-bytes ({self.max_message_bytes}),"
                " or a message of that size could never be accepted"
            )
        if self.max_queue_size < self.max_request_texts:
            raise ValueError(
                f"--max-queue-size ({self.max_queue_size}) must be at least --max-request-texts"
                f" ({self.max_request_texts}), or a request of that many texts could never be accepted"
            )
        replicas, rows = self.replicas or 1, self.rows_of(self.replicas or 1)
        if replicas > rows:
            raise ValueError(
                f"--replicas ({replicas}) must be at most --max-batch-size ({rows}), or one would have no row"
            )
        if self.max_beam_size is not None and self.max_beam_size > rows // replicas:
            divided = f" / --replicas ({replicas})" if replicas > 1 else ""
            raise ValueError(
                f"--max-beam-size ({self.max_beam_size}) must be at most --max-batch-size ({rows}){divided}:"
                " a beam takes a row"
            )
        for name in self.model_settings:
            self.of_model(name)
        return self

    @property
    def metrics_address(self) -> str:
        """Where the metrics are: `metrics_host`, or `host` without it."""
        return self.metrics_host or self.host

    def rows_of(self, replicas: int) -> int:
        """The setting `max_batch_size`, or its default for this number of replicas."""
        return self.max_batch_size or max(_DEFAULT_ROWS, _DEFAULT_ROWS_OF_A_REPLICA * replicas)

    @property
    def beam_limit(self) -> int:
        """The setting `max_beam_size`, or its default for the number of rows."""
        replicas = self.replicas or 1
        return self.max_beam_size or min(_DEFAULT_MAX_BEAM_SIZE, self.rows_of(replicas) // replicas)

    def of_model(self, name: str) -> Self:
        """The settings of the model `name`: these settings, with the values of the model's table.

        Raises:
            ValueError: the table has an unknown key or a wrong value, or its values contradict other settings.
        """
        table = self.model_settings.get(name)
        if table is None:
            return self
        for key in table:
            if key not in PER_MODEL:
                raise ValueError(f"model_settings.{name}: unknown key {key}{hint(key, PER_MODEL)}")
        try:
            return self.model_validate(dict(self) | {"model_settings": {}} | dict(table))
        except ValidationError as error:
            raise ValueError(f"model_settings.{name}: {first_problem(error)}") from None
