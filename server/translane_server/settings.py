"""Settings of a command: flag > environment variable > TOML file > default, checked once and frozen.

A setting has one name in three spellings: the field `metrics_port` is the flag ``--metrics-port``, the environment
variable ``TRANSLANE_METRICS_PORT`` and the file's key ``metrics_port``. Unknown ones are errors everywhere, so that a
typing mistake is never a setting that silently keeps its default.
"""

from __future__ import annotations

import argparse
import tomllib
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from pydantic import Field, ValidationError, create_model
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    CliPositionalArg,
    CliSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from translane_server.errors import SettingsError

# Each command reads the variables of its own prefix; the server's prefix is the start of the others'.
_COMMAND_PREFIXES = ("TRANSLANE_TRAIN_", "TRANSLANE_EXPORT_", "TRANSLANE_CLIENT_")
_SHOWN_CHARACTERS = 60
_POSITIONAL = typing.get_args(CliPositionalArg[str])[1]


class Settings(BaseSettings):
    """Base of a command's settings. Built by `load_settings`, or by keyword where a program composes its own."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 the signature is pydantic-settings'
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The constructor reads its arguments alone: the process's state belongs to the command's entry point."""
        return (init_settings,)


SettingsT = TypeVar("SettingsT", bound=Settings)


@dataclass
class _Layers:
    """The values found so far, and for each the name under which its author knows it."""

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, value: Any, origin: str) -> None:
        self.values[name] = value
        self.origins[name] = origin


def load_settings(
    cls: type[SettingsT],
    argv: Sequence[str],
    environ: Mapping[str, str],
    *,
    prog: str,
    env_prefix: str,
    config_flag: str = "--config",
) -> SettingsT:
    """Build `cls` from the arguments `argv`, the environment and the file that either of them names.

    Raises:
        SettingsError: a setting is unknown, missing or wrong; the message is one sentence.
        SystemExit: ``--help`` was asked for, and printed.
    """
    config_name = _field_name(config_flag)
    flags = _read_flags(cls, argv, prog, env_prefix, config_name)
    variables = _read_environment(cls, environ, env_prefix, config_name)
    layers = _Layers()
    if file := flags.pop(config_name, variables.pop(config_name, None)):
        for name, value in _read_file(cls, Path(file)).items():
            layers.add(name, value, f"{name} in {file}")
    for name, value in variables.items():
        layers.add(name, value, _variable(env_prefix, name))
    for name, value in flags.items():
        layers.add(name, value, flag_name(cls, name))
    try:
        return cls(**layers.values)
    except ValidationError as error:
        raise SettingsError(_sentence(cls, error.errors()[0], layers, env_prefix)) from None


def flag_name(cls: type[Settings], name: str) -> str:
    """How the command line spells the field `name`: ``--metrics-port``, or ``CHECKPOINT`` where it has no flag."""
    if any(extra is _POSITIONAL for extra in cls.model_fields[name].metadata):
        return name.upper()
    return "--" + name.replace("_", "-")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        # of "unrecognized arguments" only the first is surely wrong: the next may be its value
        prefix, _, rest = message.partition("unrecognized arguments: ")
        if not prefix and rest:
            raise SettingsError(f"unknown argument {rest.split()[0]}; --help lists the known ones")
        raise SettingsError(message.removeprefix("argument "))


def _add_argument(parser: Any, *names: str, **options: Any) -> Any:
    if isinstance(options.get("help"), str):
        options["help"] = options["help"].replace(" (default: None)", "")
    if not names[0].startswith("-") and options.get("nargs") is None:
        options |= {"nargs": "?", "default": argparse.SUPPRESS}  # the environment or the file may give it
    return argparse.ArgumentParser.add_argument(parser, *names, **options)


def _read_flags(
    cls: type[Settings], argv: Sequence[str], prog: str, env_prefix: str, config_name: str
) -> dict[str, Any]:
    description = (cls.__doc__ or "").strip()
    epilog = (
        f"Every flag has an environment twin: {env_prefix}{config_name.upper()} is --{config_name}."
        " A flag wins over the environment, the environment over the file, the file over the default."
    )
    parser = _Parser(prog=prog, description=description, epilog=epilog, allow_abbrev=False)
    config_field: Any = (Path | None, Field(default=None, description="TOML file of settings, keys like metrics_port"))
    fields: dict[str, Any] = {config_name: config_field}
    source: CliSettingsSource[argparse.ArgumentParser] = CliSettingsSource(
        create_model(cls.__name__, __base__=cls, **fields),
        root_parser=parser,
        cli_parse_args=list(argv),
        cli_kebab_case=True,
        cli_implicit_flags=True,
        cli_hide_none_type=True,
        cli_avoid_json=True,
        cli_enforce_required=False,
        add_argument_method=_add_argument,
        formatter_class=argparse.HelpFormatter,
    )
    return source()


def _read_environment(
    cls: type[Settings], environ: Mapping[str, str], env_prefix: str, config_name: str
) -> dict[str, Any]:
    others = tuple(prefix for prefix in _COMMAND_PREFIXES if prefix != env_prefix and prefix.startswith(env_prefix))
    names = {_variable(env_prefix, name): name for name in (*cls.model_fields, config_name)}
    values: dict[str, Any] = {}
    for variable, value in sorted(environ.items()):
        if not variable.startswith(env_prefix) or variable.startswith(others):
            continue
        if variable not in names:
            raise SettingsError(f"unknown environment variable {variable}{_hint(variable, names)}")
        name = names[variable]
        values[name] = value.split(",") if name != config_name and _is_list(cls, name) else value
    return values


def _read_file(cls: type[Settings], path: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"settings file {path}: it cannot be read: {error.strerror}") from None
    except ValueError as error:  # not UTF-8, or not TOML
        raise SettingsError(f"settings file {path}: it is not TOML: {error}") from None
    for name in values:
        if name not in cls.model_fields:
            raise SettingsError(f"settings file {path}: unknown key {name}{_hint(name, cls.model_fields)}")
    return values


def _sentence(cls: type[Settings], problem: ErrorDetails, layers: _Layers, env_prefix: str) -> str:
    message = problem["msg"].removeprefix("Value error, ")
    if not problem["loc"]:  # several settings contradict each other; the validator names them
        return message
    name = str(problem["loc"][0])
    if problem["type"] == "missing":
        return f"{flag_name(cls, name)} is required (or {_variable(env_prefix, name)}, or {name} in the settings file)"
    value = repr(problem["input"])
    shown = value if len(value) <= _SHOWN_CHARACTERS else value[:_SHOWN_CHARACTERS] + "…"
    return f"{layers.origins.get(name, name)}: {message[:1].lower()}{message[1:]}, not {shown}"


def _is_list(cls: type[Settings], name: str) -> bool:
    annotation = cls.model_fields[name].annotation
    return any(typing.get_origin(part) in (tuple, list) for part in (annotation, *typing.get_args(annotation)))


def _variable(env_prefix: str, name: str) -> str:
    return env_prefix + name.upper()


def _field_name(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")


def _hint(name: str, known: Mapping[str, object]) -> str:
    close = get_close_matches(name, known, n=1, cutoff=0.8)
    return f"; did you mean {close[0]}?" if close else ""
