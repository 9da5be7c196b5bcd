"""The commands of the client: `translane translate`, `score`, `models` and `bench`.

What needs gRPC is imported when the arguments are known: help, and wrong usage, take no time for it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module

from translane.arguments import Parser
from translane.command_error import CommandError
from translane_client.cli import connection_flags
from translane_client.cli.flags import ENV_PREFIX, Flags
from translane_client.cli.inputs import StandardStreams, printable
from translane_client.cli.waiting import waiting_told

_COMMANDS = ("translate", "score", "models", "bench")
"""Each is a module beside this one, which is imported when it is asked for."""


def run(name: str, argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Runs the command `name`; returns the exit code. CommandError: it failed."""
    # Python has None for a standard stream that the process was started without (`<&-`, `>&-`, `2>&-`).
    stdin, stdout = (getattr(stream, "buffer", None) for stream in (sys.stdin, sys.stdout))
    streams = StandardStreams(name, stdin, stdout, sys.stderr)
    arguments = _arguments(name, argv, environ)
    from translane.errors import TranslaneError

    try:
        arguments.connection = connection_flags.connection_of(arguments)
        with waiting_told(streams.say):
            return arguments.run(arguments, streams)  # type: ignore[no-any-return]
    except (TranslaneError, CommandError) as error:
        raise CommandError(printable(connection_flags.explained(error))) from error


def _arguments(name: str, argv: Sequence[str], environ: Mapping[str, str]) -> argparse.Namespace:
    """The command's arguments; the environment, or else a default, fills those left out. Exits on wrong usage."""
    module = import_module(f"translane_client.cli.{name}")
    parser = Parser(
        f"translane {name}",
        usage=f"translane {name} [options] {module.OPERANDS}".rstrip(),
        epilog=f"Every flag has an environment twin: {ENV_PREFIX}SERVER is --server. A flag wins over its twin.",
    )
    flags = Flags(parser)
    flags.section("connection")
    connection_flags.add_flags(flags)
    module.add_flags(parser, flags)
    parser.set_defaults(run=module.run, parser=parser)
    arguments = parser.parse_args(list(argv))
    flags.fill(arguments, environ)
    return arguments


translate, score, models, bench = (partial(run, name) for name in _COMMANDS)
