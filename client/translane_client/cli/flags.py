"""Command-line flags with environment twins, and the conversions of their values."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping
from typing import Any

from translane.arguments import Parser, with_default
from translane.options import FLOAT_MAX

ENV_PREFIX = "TRANSLANE_CLIENT_"

_INT32_MAX = 2**31 - 1
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
        """Begins a section of the help: the flags that are added from now on."""
        self._section = self._parser.add_argument_group(title, description)

    def add(self, *names: str, default: Any = None, help: str, **settings: Any) -> None:
        """Adds a flag as `ArgumentParser.add_argument` does.

        Args:
            names: The spellings of the flag.
            default: The value where neither the flag nor its twin is set; a str is converted as the flag's value is.
            help: The text of the help, which also shows the default.
            settings: Further arguments of `add_argument`.
        """
        action = self._section.add_argument(*names, default=None, help=with_default(help, default), **settings)
        convert = settings.get("type")
        self._defaults[action.dest] = (action, convert(default) if convert and isinstance(default, str) else default)

    def switch(self, *names: str, help: str, default: bool | None = False, **settings: Any) -> None:
        """Adds a flag that is yes or no: --json and --no-json."""
        self.add(*names, action=argparse.BooleanOptionalAction, default=default, help=help, **settings)

    def add_variable(self, dest: str) -> None:
        """Adds an environment variable without a flag, for what is no business of those who list processes."""
        self._defaults[dest] = (argparse.Action([], dest), None)

    def fill(self, arguments: argparse.Namespace, environ: Mapping[str, str]) -> None:
        """Sets each flag that is still None in `arguments`. A variable with a wrong value is a usage error.

        `arguments.given` becomes the set of flags on the command line.
        """
        arguments.given = {name for name in self._defaults if getattr(arguments, name, None) is not None}
        for name, (action, default) in self._defaults.items():
            if getattr(arguments, name, None) is not None:
                continue
            if text := environ.get(self._variable(action), ""):
                setattr(arguments, name, self._converted(action, text))
            else:
                setattr(arguments, name, default)

    @staticmethod
    def _variable(action: argparse.Action) -> str:
        return ENV_PREFIX + action.dest.upper()

    def _converted(self, action: argparse.Action, text: str) -> Any:
        convert: Callable[[str], Any] = boolean if action.nargs == 0 else action.type or str  # type: ignore[assignment]
        try:
            if isinstance(action, argparse._AppendAction):
                return [convert(line) for line in text.splitlines() if line]
            if action.nargs == "+":
                return [convert(word) for word in text.split()]
            return convert(text)
        except (argparse.ArgumentTypeError, ValueError) as error:
            self._parser.error(f"environment variable {self._variable(action)}: {error}")


def boolean(text: str) -> bool:
    """True from 1, true, yes or on; False from 0, false, no or off."""
    lowered = text.lower()
    if lowered in ("1", "true", "yes", "on"):
        return True
    if lowered in ("0", "false", "no", "off"):
        return False
    raise argparse.ArgumentTypeError(f"true or false is needed, not {text!r}")


def unicode(text: str) -> str:
    """A text of valid UTF-8; Python makes surrogates of other bytes on the command line."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError(f"not valid UTF-8: {text!r}") from None
    return text


def integer(text: str) -> int:
    """An integer of 32 bits, as it travels in a request."""
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"an integer is needed, not {text!r}") from None
    if not -_INT32_MAX <= value <= _INT32_MAX:
        raise argparse.ArgumentTypeError(f"an integer from {-_INT32_MAX} to {_INT32_MAX} is needed, not {text!r}")
    return value


def unsigned(text: str) -> int:
    """An integer of 64 bits, 0 or more."""
    try:
        value = int(text)
    except ValueError:
        value = -1
    if not 0 <= value < 2**64:
        raise argparse.ArgumentTypeError(f"an integer from 0 to {2**64 - 1} is needed, not {text!r}")
    return value


def number(text: str) -> float:
    """A finite number of 32 bits, as a request carries it."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not abs(value) <= FLOAT_MAX:
        raise argparse.ArgumentTypeError(f"a number is needed, not {text!r}")
    return value


def count(text: str) -> int:
    """A positive integer of 32 bits."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"a positive integer is needed, not {text!r}")
    if value > _INT32_MAX:
        raise argparse.ArgumentTypeError(f"a positive integer up to {_INT32_MAX} is needed, not {text!r}")
    return value


def positive(text: str) -> float:
    """A positive number."""
    return _positive(text, text, "a positive number")


def seconds(text: str) -> float:
    """A positive number of seconds."""
    return _positive(text, text, "a positive number of seconds")


def duration(text: str) -> float:
    """A positive number of seconds, from "500ms", "10s", "2m" or a bare number of seconds."""
    number, factor = next(
        ((text.removesuffix(unit), factor) for unit, factor in _UNITS.items() if text.endswith(unit)), (text, 1.0)
    )
    return factor * _positive(number, text, "a duration such as 500ms, 10s or 2m")


def _positive(number: str, text: str, what: str) -> float:
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{what} is needed, not {text!r}")
    return value
