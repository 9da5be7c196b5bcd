"""`translane ray`: writes the configuration of Ray Serve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from translane.command_error import CommandError
from translane_server.core.errors import SettingsError
from translane_server.core.terminal import write_output
from translane_server.models.folders import find_models
from translane_server.ray_serve.settings import ENV_PREFIX, RaySettings, written
from translane_server.settings.loader import load_settings
from translane_server.settings.model_sources import ModelPlace, RemotePlace, is_folder

_PROG = "translane ray"

# The name of the application, and of its deployment where all models share one.
APPLICATION = "translane"

_ROOM = "translane_server.ray_serve"
# How many Serve replicas may be started before the old ones of a deployment end [percent]: at least one.
_SURGE = 25
# Serve ends a call this much later than the engine does, whose error says more [seconds].
_LATER = 5.0


def ray(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Write the configuration on standard output, and return the exit code.

    Raises CommandError: see `config_of`; or the configuration cannot be written.
    """
    config = config_of(argv, environ)
    try:
        write_output(yaml.safe_dump(config, sort_keys=False, allow_unicode=True).removesuffix("\n"))
    except OSError as error:
        raise CommandError(f"standard output cannot be written: {error.strerror}") from None
    return 0


def config_of(argv: Sequence[str], environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the configuration for `serve deploy`, as YAML has it.

    Raises:
        SettingsError: a setting is wrong.
        BundleError: models are to be separate, and the name of one cannot be read.
        SystemExit: ``--help`` or ``--version`` was given, and its text is printed.
    """
    settings = load_settings(RaySettings, argv, environ, prog=_PROG, env_prefix=ENV_PREFIX)
    groups = _groups(settings)
    return {
        "proxy_location": "EveryNode",
        # Serve has an HTTP proxy on each node, on every interface by default. The probes of a node ask it.
        "http_options": {"host": "127.0.0.1"},
        "grpc_options": {
            "port": settings.port,
            "grpc_servicer_functions": [f"{_ROOM}.proxy.add_translation_service"],
            "request_timeout_s": settings.request_timeout + _LATER,
            "enable_reflection": settings.reflection,
        },
        "logging_config": {"enable_access_log": False},
        "applications": [
            {
                "name": APPLICATION,
                "import_path": f"{_ROOM}.application:build",
                "args": {"groups": groups},
                "deployments": [{"name": name, **_scale(settings)} for name in groups],
            }
        ],
    }


def _groups(settings: RaySettings) -> dict[str, dict[str, Any]]:
    """The settings of each deployment's engines, by the deployment's name. Raises as `_places`."""
    if not settings.separate_models:
        return {APPLICATION: settings.of_engine()}
    places, tables, groups = _places(settings), settings.model_settings, {}
    if unknown := set(tables) - set(places):
        raise SettingsError(f"model_settings.{min(unknown)}: there is no such model")
    for name, place in places.items():
        table = {name: tables[name]} if name in tables else {}
        own = settings.model_copy(update={"model": (place,), "models": None, "model_settings": table})
        groups[name] = own.of_engine()
    return groups


def _places(settings: RaySettings) -> dict[str, ModelPlace | RemotePlace]:
    """Where each model is, by the models' names. Nothing is downloaded.

    Raises:
        SettingsError: a model at a URL, or of the Hub, has no name, or two models have the same name.
        SettingsError, BundleError: see `find_models`.
    """
    local: list[ModelPlace] = []
    places: list[ModelPlace | RemotePlace] = []
    for place in settings.model or ():
        if is_folder(place):
            local.append(place)
        elif place.name:
            places.append(place)
        else:
            raise SettingsError(f"MODEL {place}: --separate-models takes the name of a model, too: NAME={place}")
    if local or settings.models:
        places += [ModelPlace(folder, name) for name, folder in find_models(local, settings.models).items()]
    found: dict[str, ModelPlace | RemotePlace] = {}
    for each in places:
        if (other := found.setdefault(each.name, each)) != each:
            raise SettingsError(f"two models have the name {each.name}: {written(other)} and {written(each)}")
    return found


def _scale(settings: RaySettings) -> dict[str, Any]:
    """How many Serve replicas a deployment has, what each one gets, and how they change."""
    resources = {"num_cpus": settings.serve_cpus} | ({"num_gpus": settings.serve_gpus} if settings.serve_gpus else {})
    same = {"ray_actor_options": resources, "max_surge_percent": _SURGE, "user_config": {"reload": 1}}
    if settings.max_serve_replicas is None:
        return {"num_replicas": settings.serve_replicas, **same}
    return {
        "autoscaling_config": {
            "min_replicas": settings.serve_replicas,
            "max_replicas": settings.max_serve_replicas,
            "target_ongoing_requests": settings.target_load,
            "policy": {"policy_function": f"{_ROOM}.autoscaling:by_rows"},
        },
        **same,
    }
