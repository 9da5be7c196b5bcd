"""Scripts that complete a command in a shell: `--print-completion bash` writes one for bash."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

SHELLS = ("bash", "zsh", "tcsh")


def add_flag(parser: argparse.ArgumentParser) -> None:
    """Adds --print-completion, which writes a script and ends the program as --help does."""
    parser.add_argument(
        "--print-completion",
        action=_PrintCompletion,
        choices=SHELLS,
        default=argparse.SUPPRESS,
        help="write a script for completion, and exit",
    )


class _PrintCompletion(argparse.Action):
    """Writes the script; shtab is imported then, and is needed for nothing else."""

    def __call__(self, parser: argparse.ArgumentParser, _: object, shell: object, __: str | None = None) -> None:
        try:
            import shtab
        except ModuleNotFoundError:
            parser.error("shtab is not installed, which writes the script: pip install 'translane[completion]'")
        for action in _actions(parser):
            words = re.fullmatch(r"\{(.+)\}", str(action.metavar))
            if words:
                action.choices = words[1].split(",")
            elif re.search("FILE|FOLDER|PATH|CHECKPOINT|TEACHER|CORPUS", str(action.metavar)):
                action.complete = shtab.FILE  # type: ignore[attr-defined]  # read by shtab
        print(shtab.complete(parser, str(shell)))
        parser.exit()


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for subparser in action.choices.values():
                yield from _actions(subparser)
