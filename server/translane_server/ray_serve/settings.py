"""The settings of `translane ray`: those of the server, and what Ray has to know beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field, model_validator

from translane_server.settings.loader import Flag
from translane_server.settings.model_sources import ModelPlace, RemotePlace, is_folder
from translane_server.settings.server_settings import ServerSettings

ENV_PREFIX = "TRANSLANE_RAY_"

# Settings of the server that mean nothing under Ray Serve, and what has their place there.
_REFUSED: Mapping[str, str] = {
    "admin_port": "deploy another user_config instead",
    "http_port": "Serve's gRPC proxy takes the calls",
    "http_origins": "Serve's gRPC proxy takes the calls",
    "health_port": "ask Serve's proxy for /ray.serve.RayServeAPIService/Healthz",
    "tls_cert": "Serve's gRPC proxy has no TLS of its own",
    "tls_key": "Serve's gRPC proxy has no TLS of its own",
    "tls_client_ca": "Serve's gRPC proxy has no TLS of its own",
    "metrics_tls": "the port of the metrics has no TLS",
    "max_connections": "connections end at Serve's gRPC proxy",
    "max_connection_idle": "connections end at Serve's gRPC proxy",
    "max_connection_age": "connections end at Serve's gRPC proxy",
    "max_streams": "connections end at Serve's gRPC proxy",
    "check": "translane serve has it",
}


class EngineSettings(ServerSettings):
    """The settings of an engine: those of a server that mean something under Ray Serve."""

    @model_validator(mode="after")
    def _fits_serve(self) -> EngineSettings:
        """The sentences have no secrets."""
        for name, instead in _REFUSED.items():
            if getattr(self, name) != ServerSettings.model_fields[name].default:
                raise ValueError(f"--{name.replace('_', '-')} has no meaning under Ray Serve: {instead}")
        for place in self.model or ():
            if isinstance(place, RemotePlace) and (place.url.user or place.url.query):
                raise ValueError(
                    f"MODEL {place.url}: Ray Serve shows its configuration, so a URL may have no password and no query;"
                    " take s3://, with keys in the environment of Ray, or a folder"
                )
        return self


class RaySettings(EngineSettings):
    """Writes the configuration of Ray Serve that serves translations of model bundles over gRPC."""

    short_help: ClassVar[tuple[str, ...]] = (
        *("models", "port", "metrics_port", "keys_file", "device", "replicas", "threads", "max_batch_size"),
        *("serve_replicas", "max_serve_replicas", "serve_cpus", "serve_gpus", "separate_models"),
    )

    serve_replicas: Annotated[int, Flag(heading="Ray Serve"), Field(ge=1, le=4096)] = 1
    """Serve replicas of a deployment; each one is an engine with all models of the deployment."""
    max_serve_replicas: Annotated[int | None, Field(ge=1, le=4096)] = None
    """Most Serve replicas of a deployment: their number then follows the load, from serve_replicas up; by default it is
    fixed."""
    serve_cpus: Annotated[int, Field(ge=1, le=1024)] = 1
    """CPUs of a Serve replica."""
    serve_gpus: Annotated[float, Field(ge=0, le=64)] = 0.0
    """GPUs of a Serve replica."""
    target_load: Annotated[float, Flag("SHARE"), Field(gt=0, le=16)] = 0.7
    """Share of the busiest model's rows, waiting sentences included, at which the number of engines stays."""
    separate_models: bool = False
    """Give each model a deployment of its own; by default all models share one."""

    @model_validator(mode="after")
    def _least_is_below_most(self) -> RaySettings:
        if self.max_serve_replicas is not None and self.max_serve_replicas < self.serve_replicas:
            raise ValueError(
                f"--max-serve-replicas ({self.max_serve_replicas}) must be at least --serve-replicas"
                f" ({self.serve_replicas})"
            )
        return self

    def of_engine(self) -> dict[str, Any]:
        """Return the settings of an engine that differ from the defaults, as YAML has them."""
        own = set(RaySettings.model_fields) - set(ServerSettings.model_fields)
        given = self.model_dump(mode="json", exclude=own | {"model", "port"}, exclude_defaults=True)
        # Serve starts engines in other folders, and on other machines, where ~ is another folder, too.
        paths = {
            name: str(path if str(path).startswith("~") else path.absolute())
            for name, path in self
            if isinstance(path, Path)
        }
        places = [written(place) for place in self.model or ()]
        return ({"model": places} if places else {}) | given | paths


def written(place: ModelPlace | RemotePlace) -> str:
    """Return a place as the setting `model` has it, wherever it is read. `EngineSettings` have no URLs with secrets."""
    return str(replace(place, folder=place.folder.absolute()) if is_folder(place) else place)
