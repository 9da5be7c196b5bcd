"""Builds the application: one deployment for each group of models, and a router before them if there are several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from ray import serve
from ray.serve.deployment import Application, Deployment

from translane_server.core.errors import SettingsError
from translane_server.ray_serve.calls import Ingress
from translane_server.ray_serve.engine import Engine
from translane_server.ray_serve.router import Router
from translane_server.ray_serve.settings import EngineSettings
from translane_server.settings.loader import first_problem

ROUTER = "router"
_ROUTERS = 2  # one goes on where the other ends

# How often Serve looks whether an engine has answered its last call [seconds], and how long the rest of an engine's end
# takes [seconds].
_DRAINING_STEP = 0.5
_ENDING_TIME = 10.0


def build(args: dict[str, Any]) -> Application:
    """Return the application. `translane ray` writes a configuration that names this function.

    In `args`, `groups` has the settings of each deployment's engines, by the name of the deployment.

    Raises:
        SettingsError: a setting is wrong, or has no meaning under Ray Serve.
    """
    groups = args.get("groups")
    if set(args) != {"groups"} or not isinstance(groups, Mapping) or not groups:
        raise SettingsError("args has groups, the settings of each deployment by its name, and nothing else")
    settings = {name: _settings(name, values) for name, values in groups.items()}
    engines = {name: _deployment(Engine, name, [each]).bind(each) for name, each in settings.items()}
    if len(engines) == 1:
        return engines.popitem()[1]
    if ROUTER in engines:
        raise SettingsError(f"groups.{ROUTER}: the deployment before the others has this name")
    every = list(settings.values())
    router = _deployment(Router, ROUTER, every, num_replicas=_ROUTERS, ray_actor_options={"num_cpus": 0})
    return router.bind(engines, max(each.max_message_bytes for each in every))


def _settings(group: str, values: Mapping[str, Any]) -> EngineSettings:
    try:
        return EngineSettings.model_validate(values)
    except ValidationError as error:
        raise SettingsError(f"groups.{group}: {first_problem(error)}") from None


def _deployment(cls: type[Ingress], name: str, behind: Sequence[EngineSettings], **options: Any) -> Deployment:
    """Return a deployment, with what Serve has to know of it.

    It takes the calls of the engines with the settings `behind`. An engine itself limits calls and callers, and says so
    in its errors.
    """
    calls = sum(each.max_calls for each in behind)
    return serve.deployment(cls).options(
        name=name,
        max_ongoing_requests=calls,
        max_queued_requests=calls,
        graceful_shutdown_wait_loop_s=_DRAINING_STEP,
        graceful_shutdown_timeout_s=max(each.grace_period for each in behind) + _ENDING_TIME,
        **options,
    )
