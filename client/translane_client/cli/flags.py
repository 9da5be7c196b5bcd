"""Command-line flags with environment twins, and the conversions of their values."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from translane.arguments import Parser, with_default
from translane.options import FLOAT_MAX

Value = TypeVar("Value")

ENV_PREFIX = "TRANSLANE_CLIENT_"

_INT32_MAX = 2**31 - 1
_BOOLEANS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0}


class Flags:
    """Adds flags to a parser; `fill` gives a flag that was not set the value of its environment twin, or its default.

    The twin of --source-language is TRANSLANE_CLIENT_SOURCE_LANGUAGE. An empty variable counts as unset. The
    variable of a flag that may be repeated holds a value on each line; the variable of a flag with several values has
    spaces between them.
    """

    def __init__(self, parser: Parser) -> None:
        self._parser = parser
        self._section: argparse._ActionsContainer = parser
        self._defaults: dict[str, tuple[argparse.Action, Any]] = {}

    def section(self, title: str, description: str | None = None) -> None:
        self._section = self._parser.add_argument_group(title, description)

    def add(self, *names: str, default: Any = None, help: str, **settings: Any) -> None:
        """Adds a flag as `add_argument` does. The help shows the default; a str is converted as the flag's value is."""
        action = self._section.add_argument(*names, default=None, help=with_default(help, default), **settings)
        convert = settings.get("type")
        self._defaults[action.dest] = (action, convert(default) if convert and isinstance(default, str) else default)

    def switch(self, *names: str, help: str, default: bool | None = False) -> None:
        self.add(*names, action=argparse.BooleanOptionalAction, default=default, help=help)

    def add_variable(self, dest: str) -> None:
        """Adds an environment variable without a flag, for what is no business of those who list processes."""
        self._defaults[dest] = (argparse.Action([], dest), None)

    def fill(self, arguments: argparse.Namespace, environ: Mapping[str, str]) -> None:
        """Sets each flag that is still None in `arguments`. A variable with a wrong value is a usage error.

        `arguments.given` becomes the set of flags on the command line.
        """
        arguments.given = {name for name in self._defaults if getattr(arguments, name, None) is not None}
        for name, (action, default) in self._defaults.items():
            if name in arguments.given:
                continue
            variable = ENV_PREFIX + name.upper()
            try:
                value = _converted(action, environ[variable]) if environ.get(variable) else default
            except (argparse.ArgumentTypeError, ValueError) as error:
                self._parser.error(f"environment variable {variable}: {error}")
            setattr(arguments, name, value)


def _converted(action: argparse.Action, text: str) -> Any:
    convert: Any = boolean if action.nargs == 0 else action.type or str
    if isinstance(action, argparse._AppendAction):
        return [convert(line) for line in text.splitlines() if line]
    return [convert(word) for word in text.split()] if action.nargs == "+" else convert(text)


def unicode(text: str) -> str:
    """A text of valid UTF-8; Python makes surrogates of other bytes on the command line."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError(f"not valid UTF-8: {text!r}") from None
    return text


def _checked(
    convert: Callable[[str], Value], what: str, fits: Callable[[Value], bool] = lambda _: True
) -> Callable[[str], Value]:
    """A conversion of a flag's value that says what is needed."""

    def checked(text: str) -> Value:
        try:
            if fits(value := convert(text)):
                return value
        except (ValueError, KeyError):
            pass
        raise argparse.ArgumentTypeError(f"{what} is needed, not {text!r}")

    return checked


def _seconds_of(text: str) -> float:
    unit = next((unit for unit in _UNITS if text.endswith(unit)), "")
    return float(text.removesuffix(unit)) * _UNITS.get(unit, 1.0)


def _is_positive(value: float) -> bool:
    return 0 < value < math.inf


boolean = _checked(lambda text: _BOOLEANS[text.lower()], "true or false")
# Of 32 and 64 bits, as they travel in a request.
integer = _checked(int, f"an integer from {-_INT32_MAX} to {_INT32_MAX}", lambda value: abs(value) <= _INT32_MAX)
count = _checked(int, f"an integer from 1 to {_INT32_MAX}", lambda value: 0 < value <= _INT32_MAX)
unsigned = _checked(int, f"an integer from 0 to {2**64 - 1}", lambda value: 0 <= value < 2**64)
number = _checked(float, "a number", lambda value: abs(value) <= FLOAT_MAX)
positive = _checked(float, "a positive number", _is_positive)
seconds = _checked(float, "a positive number of seconds", _is_positive)
pause = _checked(_seconds_of, "0 or a duration such as 500ms, 10s or 2m", lambda value: 0 <= value < math.inf)
duration = _checked(_seconds_of, "a duration such as 500ms, 10s or 2m", _is_positive)
