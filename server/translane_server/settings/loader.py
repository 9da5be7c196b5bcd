"""Loads the settings of a command: flag > environment variable > TOML file > default.

The field `metrics_port` is the flag ``--metrics-port``, the environment variable ``TRANSLANE_METRICS_PORT`` and the
file's key ``metrics_port``. An unknown name is an error in all three places, so a typing mistake never goes unnoticed.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import textwrap
import tomllib
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import NoneType
from typing import Any, ClassVar, Literal, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from translane.arguments import Parser, hint, with_default
from translane_server.core.errors import SettingsError
from translane_server.core.files import read_regular
from translane_server.core.terminal import shown

# Each command reads the variables with its own prefix. The server's prefix is also the start of the other prefixes.
_COMMANDS = ("TRAIN", "DISTILL", "EXPORT", "EXPLAIN", "CLIENT", "RAY", "BATCH")
_COMMAND_PREFIXES = tuple(f"TRANSLANE_{name}_" for name in _COMMANDS)
_CONFIG = "config"  # the name of the settings file, which is no field
_MOST_BYTES = 1 << 20  # of a settings file
# The type of errors about values that may hold a secret. Messages do not quote these values.
UNQUOTED = "unquoted"

_METAVARS: Mapping[Any, str] = {int: "N", float: "X", str: "TEXT", Path: "PATH"}


class Settings(BaseModel):
    """Base of the settings of a command. `load_settings` builds them; programs may also pass them by keyword."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)

    short_help: ClassVar[tuple[str, ...]] = ()
    """Settings that `--help` shows beside those that the usage names, where not all of them fit on a page."""

    @classmethod
    @cache
    def descriptions(cls) -> Mapping[str, str]:
        """The description of each setting, or else the docstring below it.

        pydantic reads docstrings where a class is made, which takes a sixth of the imports of a short command.
        """
        found: dict[str, str] = {}
        for base in reversed(cls.__mro__[: cls.__mro__.index(Settings)]):
            try:
                (definition,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
            except OSError:  # Python runs without the source
                continue
            for field, below in pairwise(getattr(definition, "body", ())):
                match field, below:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                        found[name] = " ".join(text.split())
        return {name: field.description or found.get(name, "") for name, field in cls.model_fields.items()}


@dataclass(frozen=True)
class Flag:
    """How a setting looks on the command line, if its name and its type are not enough.

    A flag is metadata in a field's annotation: ``host: Annotated[str, Flag("HOST")]``.
    """

    metavar: str | None = None
    """The word for the value in the help. None: the word for its type, such as N for an int."""
    short: str | None = None
    """A second spelling, such as ``-o``."""
    positional: bool = False
    """Whether the value, or each of a list, stands alone, without ``--name``."""
    heading: str | None = None
    """The heading of a section of the help. This setting is the first of the section."""
    separator: str = ","
    """The regular expression between two items of a list, in a flag and in a variable."""
    in_usage: bool = False
    """Whether the usage names the setting, although it may be left out. It names all settings that may not."""
    in_file: bool = False
    """Whether only the settings file has the setting."""
    unquoted: bool = False
    """Whether no message quotes the value, because it may hold a secret."""


SettingsT = TypeVar("SettingsT", bound=Settings)


def load_settings(
    cls: type[SettingsT], argv: Sequence[str], environ: Mapping[str, str], *, prog: str, env_prefix: str
) -> SettingsT:
    """Build settings from arguments, environment variables and the settings file that either of them names.

    `argv` is without the name of the program. Of a program with commands, `prog` is both names, with a space between
    them.

    Raises:
        SettingsError: a setting is unknown, missing or invalid; the message is one sentence.
        SystemExit: ``--help`` or ``--version`` was given, and its text is printed.
    """
    parser = _parser(cls, prog, env_prefix)
    # Positional arguments may stand on both sides of a flag; of what comes after "--", argparse reads only one way.
    flags = vars(parser.parse_args(argv) if "--" in argv else parser.parse_intermixed_args(argv))
    variables = _read_environment(cls, environ, env_prefix)
    file = flags.pop(_CONFIG, variables.pop(_CONFIG, None))
    keys = _read_file(cls, Path(file)) if file else {}
    origins = {name: f"{name} in {file}" for name in keys}
    origins |= {name: _variable(env_prefix, name) for name in variables}
    origins |= {name: flag_name(cls, name) for name in flags}
    given = {name: _items(cls.model_fields[name], value) for name, value in (variables | flags).items()}
    try:
        return cls(**keys | given)
    except ValidationError as error:
        raise SettingsError(_sentence(cls, error.errors()[0], origins, env_prefix)) from None


def flag_name(cls: type[Settings], name: str) -> str:
    """The field `name` on the command line: ``--metrics-port``, or ``CHECKPOINT`` for a positional argument."""
    return name.upper() if flag_of(cls.model_fields[name]).positional else "--" + name.replace("_", "-")


class SettingsParser(Parser):
    """A parser whose errors are about settings. It has flags for the settings of `of`, if that is a class."""

    of: type[Settings] | None = None

    def format_whole_help(self) -> str:
        texts = _help(self.of) if self.of else {}
        for action in self._actions:
            action.help = texts.get(action.dest, action.help)
        return super().format_whole_help()

    def error(self, message: str) -> NoReturn:
        raise SettingsError(message.removeprefix("argument "))


def _read_environment(cls: type[Settings], environ: Mapping[str, str], env_prefix: str) -> dict[str, str]:
    others = tuple(prefix for prefix in _COMMAND_PREFIXES if prefix != env_prefix and prefix.startswith(env_prefix))
    settings = [name for name, setting in cls.model_fields.items() if not flag_of(setting).in_file]
    names = {_variable(env_prefix, name): name for name in (*settings, _CONFIG)}
    values: dict[str, str] = {}
    for variable, value in sorted(environ.items()):
        if not variable.startswith(env_prefix) or variable.startswith(others):
            continue
        if variable not in names:
            raise SettingsError(f"unknown environment variable {variable}{hint(variable, names)}")
        if value:  # an empty one is as if it were not set
            values[names[variable]] = value
    return values


def _read_file(cls: type[Settings], path: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(read_regular(path, _MOST_BYTES).decode())
    except OSError as error:
        raise SettingsError(f"settings file {path}: it cannot be read: {error.strerror}") from None
    except ValueError as error:  # not UTF-8, or not TOML
        raise SettingsError(f"settings file {path}: it is not TOML: {error}") from None
    except RecursionError:
        raise SettingsError(f"settings file {path}: it is not TOML: it is nested too deeply") from None
    for name in values:
        if name not in cls.model_fields:
            raise SettingsError(f"settings file {path}: unknown key {name}{hint(name, cls.model_fields)}")
    return values


def _parser(cls: type[Settings], prog: str, env_prefix: str) -> Parser:
    """A parser with a flag for each setting, and one for the settings file."""
    fields = {name: (setting, flag_of(setting)) for name, setting in cls.model_fields.items()}
    named = [name for name, (setting, flag) in fields.items() if setting.is_required() or flag.in_usage]
    usage = [f"{flag_name(cls, name)} {_metavar(cls, name)}" for name in named if not fields[name][1].positional]
    usage.append("[options]")
    usage += [
        _metavar(cls, name) + (" ..." if _is_list(setting) else "")
        for name, (setting, flag) in fields.items()
        if flag.positional
    ]
    parser = SettingsParser(
        prog,
        usage=" ".join([prog, *usage]),
        description=(cls.__doc__ or "").strip(),
        epilog=f"Environment twins: {_variable(env_prefix, _CONFIG)} is --{_CONFIG}. A flag wins over the"
        " environment, the environment over the file, the file over the default.",
        argument_default=argparse.SUPPRESS,
    )
    parser.of = cls
    parser.short_help = (*named, *cls.short_help) if cls.short_help else ()
    parser.add_argument(f"--{_CONFIG}", metavar="FILE", help="TOML file of settings; a key is a flag with _ for -")
    section: argparse._ActionsContainer = parser
    for name, (setting, flag) in fields.items():
        if flag.in_file:
            continue
        if flag.heading:
            section = parser.add_argument_group(flag.heading)
        keywords: dict[str, Any] = {}
        if _kinds(setting.annotation) == [bool]:
            keywords["action"] = argparse.BooleanOptionalAction
        else:
            keywords["metavar"] = _metavar(cls, name)
        if _is_list(setting):
            keywords["action"] = "extend" if flag.positional else "append"
        if flag.positional:  # It may be left out here, because the environment or the file may have it.
            section.add_argument(name, nargs="*" if _is_list(setting) else "?", **keywords)
        else:
            section.add_argument(*filter(None, [flag.short]), flag_name(cls, name), dest=name, **keywords)
    return parser


def _metavar(cls: type[Settings], name: str) -> str:
    setting = cls.model_fields[name]
    flag = flag_of(setting)
    if flag.metavar or flag.positional:
        return flag.metavar or flag_name(cls, name)
    kind = _kinds(setting.annotation)[0]
    if typing.get_origin(kind) is Literal:
        return "{" + ",".join(map(str, typing.get_args(kind))) + "}"
    return _METAVARS.get(kind, name.upper())


def _help(cls: type[Settings]) -> dict[str, str]:
    """The description of each setting, and its default if it has one."""
    texts = {}
    for name, description in cls.descriptions().items():
        setting, text = cls.model_fields[name], description.replace("%", "%%")
        texts[name] = f"{text} (required)" if setting.is_required() else with_default(text, setting.default)
    return texts


def flag_of(setting: FieldInfo) -> Flag:
    """How a setting looks on the command line."""
    return next((each for each in setting.metadata if isinstance(each, Flag)), Flag())


def _items(setting: FieldInfo, value: Any) -> Any:
    """The value of a flag or of a variable; of a list, the items. A flag of a list may be there several times."""
    if not _is_list(setting):
        return value
    parts = [value] if isinstance(value, str) else value
    return [item for part in parts for item in re.split(flag_of(setting).separator, part)]


def _is_list(setting: FieldInfo) -> bool:
    annotation = setting.annotation
    return any(typing.get_origin(part) in (tuple, list) for part in (annotation, *typing.get_args(annotation)))


def _kinds(annotation: Any) -> list[Any]:
    """The types of a value, without None. A list gives the types of its items, and a union gives its members."""
    parts = typing.get_args(annotation)
    if not parts or typing.get_origin(annotation) is Literal:
        return [annotation]
    return [kind for part in parts if part not in (NoneType, Ellipsis) for kind in _kinds(part)]


def _sentence(cls: type[Settings], problem: ErrorDetails, origins: Mapping[str, str], env_prefix: str) -> str:
    if not problem["loc"]:  # several settings contradict each other, and the message names them
        return _what_is_wrong(problem)
    name = str(problem["loc"][0])
    if problem["type"] == "missing":
        return f"{flag_name(cls, name)} is required (or {_variable(env_prefix, name)}, or {name} in the settings file)"
    if name in cls.model_fields and flag_of(cls.model_fields[name]).unquoted:
        problem["type"] = UNQUOTED
    return f"{origins.get(name, name)}: {_what_is_wrong(problem)}"


def first_problem(error: ValidationError) -> str:
    """The sentence about the first wrong setting, for settings that did not come by `load_settings`."""
    problem = error.errors()[0]
    name = "".join(f"{part}: " for part in problem["loc"][:1])
    return name + _what_is_wrong(problem)


def _what_is_wrong(problem: ErrorDetails) -> str:
    """The end of a sentence about settings: what pydantic says, and the value if a single one is wrong."""
    message = problem["msg"].removeprefix("Value error, ")
    if not problem["loc"]:
        return message
    message = message[:1].lower() + message[1:]
    if problem["type"] == UNQUOTED:
        return message
    choices = re.findall("'(.*?)'", problem["ctx"]["expected"]) if problem["type"] == "literal_error" else ()
    return f"{message}, not {shown(problem['input'])}{hint(str(problem['input']), choices)}"


def _variable(env_prefix: str, name: str) -> str:
    return env_prefix + name.upper()
