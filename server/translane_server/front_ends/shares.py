"""What each front end gets of the server: its part of the CPUs, and of all that the settings bound."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError

from translane_server.dispatch.plan import divided
from translane_server.errors import SettingsError
from translane_server.settings import ServerSettings
from translane_server.settings_loader import what_is_wrong

# The settings that are divided. Each of them counts something of the whole server.
DIVIDED = (
    "replicas",
    "max_batch_size",
    "max_queue_size",
    "max_calls",
    "max_connections",
    "max_bytes_in_flight",
    "cache_bytes",
)
_OPTIONAL = ("cache_bytes",)  # 0 switches these off


class Share(NamedTuple):
    """The part of one front end.

    Attributes:
        settings: the settings of the front end.
        cpus: number of CPUs of the front end (≥ 1).
    """

    settings: ServerSettings
    cpus: int


def shares_of(settings: ServerSettings, cpus: int) -> list[Share]:
    """Divide a server among its front ends. Of what does not divide evenly, the first front ends get one more.

    The limits of a request are the same in all of them. A default is divided only as far as a request of the largest
    size still fits.

    Args:
        settings: settings of the server.
        cpus: number of CPUs of the server.

    Raises:
        SettingsError: a front end would get too little of something.
    """
    number = settings.front_ends
    if number > cpus:
        raise SettingsError(f"--front-ends ({number}) must be at most the CPUs granted ({cpus})")
    given = [_part(settings, place) for place in range(number)]
    parts = [_settings(settings, part) for part in given]
    changed = {"max_beam_size": min(part.beam_limit for part in parts)}
    tables = _tables_of_beams(settings, parts)
    return [
        Share(
            _settings(settings, part | changed | {"model_settings": _merged(part["model_settings"], tables)}), cpus_here
        )
        for part, cpus_here in zip(given, divided(cpus, number), strict=True)
    ]


def _part(settings: ServerSettings, place: int) -> dict[str, Any]:
    """The values of the front end at `place`: those of the server, with parts of what is divided."""
    number = settings.front_ends
    values = {name: getattr(settings, name) for name in type(settings).model_fields}
    least = {
        "max_queue_size": settings.max_request_texts,
        "max_bytes_in_flight": -int(-settings.max_message_bytes // settings.caller_share),
    }
    for name in DIVIDED:
        whole = values[name]
        if whole is not None:
            values[name] = _part_of(name, whole, number, place, f"--{name.replace('_', '-')}")
            if name in least and name not in settings.model_fields_set:
                values[name] = max(values[name], least[name])
    values["model_settings"] = {
        model: {
            name: _part_of(name, value, number, place, f"model_settings.{model}.{name}") if name in DIVIDED else value
            for name, value in table.items()
        }
        for model, table in settings.model_settings.items()
    }
    return values | {"front_ends": 1, "admin_port": None, "health_port": None}


def _part_of(name: str, whole: int, number: int, place: int, title: str) -> int:
    """The part at `place` of `number` parts of a setting.

    Raises:
        SettingsError: a part would be nothing.
    """
    if whole < number and not (name in _OPTIONAL and whole == 0):
        raise SettingsError(f"--front-ends ({number}) must be at most {title} ({whole}), or one would get none")
    return divided(whole, number)[place]


def _settings(server: ServerSettings, values: Mapping[str, Any]) -> ServerSettings:
    """Check the settings of a front end.

    Raises:
        SettingsError: they contradict each other.
    """
    try:
        return ServerSettings.model_validate(values)
    except ValidationError as error:
        wrong = what_is_wrong(error.errors()[0])
        raise SettingsError(f"--front-ends ({server.front_ends}) leaves each front end too little: {wrong}") from None


def _tables_of_beams(server: ServerSettings, parts: list[ServerSettings]) -> dict[str, dict[str, int]]:
    """For each model with settings of its own, the beam size that every front end has rows for."""
    return {
        name: {"max_beam_size": min(part.of_model(name).beam_limit for part in parts)} for name in server.model_settings
    }


def _merged(
    tables: Mapping[str, Mapping[str, Any]], changes: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    return {name: {**table, **changes[name]} for name, table in tables.items()}
