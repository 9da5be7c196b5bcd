"""The commands of `translane` within this process: functions of arguments, and of an environment, to the exit code."""

from collections.abc import Callable, Mapping, Sequence
from unittest import mock

from translane.__main__ import main

Command = Callable[..., int]


def _command(name: str) -> Command:
    def run(argv: Sequence[str] = (), environ: Mapping[str, str] | None = None) -> int:
        return main([name, *argv], environ)

    return run


def _supervised(name: str) -> Command:
    """A command that elsewhere goes on in a process of its own."""

    def run(argv: Sequence[str] = (), environ: Mapping[str, str] | None = None) -> int:
        with mock.patch("translane_export.command.supervise", return_value=None):
            return main([name, *argv], environ)

    return run


serve, train, distill, batch, keys, ray, inspect = map(
    _command, ("serve", "train", "distill", "batch", "keys", "ray", "inspect")
)
export, explain, shortlist = map(_supervised, ("export", "explain", "shortlist"))
