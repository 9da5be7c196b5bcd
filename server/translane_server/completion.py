"""Scripts that complete a command in a shell: `--print-completion bash` writes one for bash."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator
from typing import Any

SHELLS = ("bash", "zsh", "tcsh")

_FILES = re.compile("FILE|FOLDER|PATH|BUNDLE|CHECKPOINT|CORPUS|PROFILE|TEACHER")  # words for files in the help


def add_flag(parser: argparse.ArgumentParser, add_commands: Callable[[], None] | None = None) -> None:
    """Adds --print-completion, which writes a script and ends the program as --help does.

    Args:
        parser: the parser of the program.
        add_commands: adds the parsers of the program's commands to it. It is called before the script is written.
    """
    parser.add_argument(
        "--print-completion",
        action=_PrintCompletion,
        add_commands=add_commands,
        choices=SHELLS,
        default=argparse.SUPPRESS,
        help="write a script for completion, and exit",
    )


class _PrintCompletion(argparse.Action):
    """Writes the script; shtab is imported then, and is needed for nothing else."""

    def __init__(self, *arguments: Any, add_commands: Callable[[], None] | None, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._add_commands = add_commands

    def __call__(self, parser: argparse.ArgumentParser, _: object, shell: object, __: str | None = None) -> None:
        try:
            import shtab
        except ModuleNotFoundError:
            parser.error("shtab is not installed, which writes the script: pip install 'translane[completion]'")
        first = next(iter(parser._get_positional_actions()), None)
        if self._add_commands and (first is None or shell == "bash"):  # others offer files, or commands, but not both
            self._add_commands()
        for action in _actions(parser):
            words = re.fullmatch(r"\{(.+)\}", str(action.metavar))
            if words:
                action.choices = words[1].split(",")
            elif _FILES.search(str(action.metavar)):
                action.complete = shtab.FILE  # type: ignore[attr-defined]  # read by shtab
        if self._add_commands and first and shell == "bash":
            _offer_commands(parser, first)
        print(shtab.complete(parser, str(shell)))
        parser.exit()


def _offer_commands(parser: argparse.ArgumentParser, first: argparse.Action) -> None:
    """Let bash offer the commands beside the files, where the first word is either."""
    name = re.sub(r"\W", "_", f"_{parser.prog}_file_or_command")  # shtab looks for _file in it
    (commands,) = (action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    function = f'{name}() {{\n  compgen -f -- "$1"\n  compgen -W {" ".join(commands)!r} -- "$1"\n}}'
    first.complete = {"bash": name, "preamble": {"bash": function}}  # type: ignore[attr-defined]  # read by shtab
    first.nargs = "*"  # else shtab offers the commands as the second word


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for subparser in action.choices.values():
                yield from _actions(subparser)
