"""The parser of every command: argparse with a help of one page, the rest on demand, and suggestions."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Iterable, Iterator
from difflib import get_close_matches
from functools import partial
from typing import Any, NoReturn

from translane.command_error import escaped

_MOST_LINES = 60  # of the short help
_ALIKE = 0.75  # from 0, of names that have nothing in common, to 1


class Parser(argparse.ArgumentParser):
    """A parser with `--help`, `--help-all` and `--version`. What is wrong is one sentence.

    `--help` shows everything where that fits on a page, and else the arguments named in `short_help`, the arguments
    without `--`, and the settings file.
    """

    short_help: Collection[str] = ()
    """Names, as in the namespace, of the arguments that most people need. Without any, the help is never shortened."""

    def __init__(self, prog: str | None = None, **settings: Any) -> None:
        super().__init__(prog, allow_abbrev=False, add_help=False, formatter_class=_Formatter, **settings)
        self.add_argument("-h", "--help", action=_Print, text=self.format_help, help="show this help, and exit")
        self.add_argument("--help-all", action=_Print, text=self.format_whole_help, help=argparse.SUPPRESS)
        self.add_argument("-V", "--version", action=_Print, text=self._version, help="show the version, and exit")

    def format_help(self) -> str:
        """The help on a page."""
        whole = self.format_whole_help()
        if not self.short_help or whole.count("\n") <= _MOST_LINES:
            return whole
        actions = {action.dest: action for action in self._actions}
        shown = [actions[name] for name in self.short_help]
        shown += [action for action in self._actions if not action.option_strings or action.dest in _ALWAYS_SHOWN]
        hidden = sum(action.help != argparse.SUPPRESS for action in self._actions if action not in shown)
        self.formatter_class = partial(_Formatter, shown=shown)
        return f"{super().format_help()}\n{self.prog} --help-all shows {hidden} more.\n"

    def format_whole_help(self) -> str:
        """The help of all arguments."""
        self.formatter_class = _Formatter
        return super().format_help()

    def _version(self) -> str:
        from importlib.metadata import version  # late: it takes as long as the rest of a short command

        return f"{self.prog} {version('translane')}\n"

    def parse_args(self, args: Any = None, namespace: Any = None) -> argparse.Namespace:  # type: ignore[override]
        return self._known(*self.parse_known_args(args, namespace))

    def parse_intermixed_args(  # type: ignore[override]
        self, args: Any = None, namespace: Any = None
    ) -> argparse.Namespace:
        return self._known(*self.parse_known_intermixed_args(args, namespace))

    def _known(self, found: argparse.Namespace, unknown: list[str]) -> argparse.Namespace:
        if unknown:  # Only the first one is surely wrong: the next one may be its value.
            name = unknown[0].partition("=")[0]
            advice = hint(name, self._flags()) or "; --help-all lists the known ones"
            self.error(f"unknown argument {escaped(name)}{advice}")
        return found

    def _flags(self) -> Iterator[str]:
        """The flags, with those of commands."""
        for action in self._actions:
            yield from action.option_strings
            if isinstance(action, argparse._SubParsersAction):
                for parser in action.choices.values():
                    yield from parser._flags()

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None:
            try:
                one_of(action.choices)(value)
            except argparse.ArgumentTypeError as error:
                raise argparse.ArgumentError(action, str(error)) from None

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message.removeprefix('argument ')}\n")


_ALWAYS_SHOWN = ("help", "version", "config")


class _Formatter(argparse.HelpFormatter):
    def __init__(self, prog: str, shown: Collection[argparse.Action] | None = None) -> None:
        super().__init__(prog, max_help_position=26)
        self._shown = shown

    def add_argument(self, action: argparse.Action) -> None:
        if self._shown is None or action in self._shown:
            super().add_argument(action)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        """The flag's spellings, and the word for its value: -o, --output FILE; --[no-]json."""
        if not action.option_strings:
            return super()._format_action_invocation(action)
        if isinstance(action, argparse.BooleanOptionalAction):
            return action.option_strings[0].replace("--", "--[no-]", 1)
        value = "" if action.nargs == 0 else " " + self._format_args(action, action.dest.upper())
        return ", ".join(action.option_strings) + value


class _Print(argparse.Action):
    """Prints a text, and ends the program."""

    def __init__(self, option_strings: list[str], dest: str, *, text: Callable[[], str], **keywords: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, **keywords)
        self._text = text

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        print(self._text(), end="")  # argparse would say nothing of a full disk
        parser.exit()


def with_default(help: str, default: Any) -> str:
    """The text of an argument's help, with its default where that says something."""
    if default is None or default is False or default in ("", ()):
        return help
    shown = "yes" if default is True else f"{default:g}" if isinstance(default, float) else default
    return f"{help} (default: {shown})"


def one_of(names: Iterable[str]) -> Callable[[str], str]:
    """Converts the value of an argument: to the one of `names` that it is."""
    known = {str(name): name for name in names}

    def convert(text: str) -> str:
        if text not in known:
            raise argparse.ArgumentTypeError(f"one of {', '.join(known)} is needed, not {text!r}{hint(text, known)}")
        return known[text]

    return convert


def hint(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown `name`: which of the `known` names is meant, if one is alike."""
    known = list(dict.fromkeys(known))
    longer = [each for each in known if name and each.startswith(name)]
    close = longer if len(longer) == 1 else get_close_matches(name, known, n=1, cutoff=_ALIKE)
    return f"; did you mean {close[0]}?" if close else ""
