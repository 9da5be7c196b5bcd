"""Builds the application: one deployment for each group of models, and a router before them if there are several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray import serve
from ray.serve.deployment import Application

from translane_server.core.errors import SettingsError
from translane_server.ray_serve.engine import Engine
from translane_server.ray_serve.router import Router
from translane_server.ray_serve.settings import read_settings
from translane_server.settings.server_settings import ServerSettings

ROUTER = "router"
_ROUTERS = 2  # one goes on where the other ends

# How often Serve looks whether an engine has answered its last call [seconds], and how long the rest of an engine's end
# takes [seconds].
_DRAINING_STEP = 0.5
_ENDING_TIME = 10.0


def build(args: dict[str, Any]) -> Application:
    """Return the application. `translane ray` writes a configuration that names this function.

    Args:
        args: `groups` has the settings of each deployment's engines, by the name of the deployment.

    Raises:
        SettingsError: a setting is wrong, or has no meaning under Ray Serve.
    """
    groups = args.get("groups")
    if set(args) != {"groups"} or not isinstance(groups, Mapping) or not groups:
        raise SettingsError("args has groups, the settings of each deployment by its name, and nothing else")
    settings: dict[str, ServerSettings] = {}
    engines: dict[str, Application] = {}
    for name, values in groups.items():
        try:
            settings[name] = read_settings(values)
        except SettingsError as error:
            raise SettingsError(f"groups.{name}: {error}") from None
        options = _options(settings[name].max_calls, settings[name].grace_period)
        engines[name] = serve.deployment(Engine).options(name=name, **options).bind(dict(values))
    if len(engines) == 1:
        return next(iter(engines.values()))
    if ROUTER in engines:
        raise SettingsError(f"groups.{ROUTER}: the deployment before the others has this name")
    largest = max(each.max_message_bytes for each in settings.values())
    options = _options(
        sum(each.max_calls for each in settings.values()), max(each.grace_period for each in settings.values())
    )
    router = serve.deployment(Router).options(
        name=ROUTER, num_replicas=_ROUTERS, ray_actor_options={"num_cpus": 0}, **options
    )
    return router.bind(engines, largest)


def _options(calls: int, grace: float) -> dict[str, Any]:
    """What Serve has to know of a deployment.

    Args:
        calls: most calls of a Serve replica, and most calls that wait at a proxy. An engine itself limits calls and
            callers, and says so in its errors.
        grace: time that calls get to finish when a Serve replica ends [seconds].
    """
    return {
        "max_ongoing_requests": calls,
        "max_queued_requests": calls,
        "graceful_shutdown_wait_loop_s": _DRAINING_STEP,
        "graceful_shutdown_timeout_s": grace + _ENDING_TIME,
    }
