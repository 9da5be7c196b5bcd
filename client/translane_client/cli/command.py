"""The `translane` command line: its arguments, its commands and its exit codes."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import BinaryIO, TextIO

from translane_client import models_command, score_command, translate_command
from translane_client._core import target_of
from translane_client.bench import command as bench_command
from translane_client.bulk import CommandError
from translane_client.errors import TranslaneError
from translane_client.flags import Flags, count, seconds, unicode
from translane_client.lines import FileError
from translane_client.retry import RetryPolicy
from translane_client.streams import Streams

_BROKEN_PIPE = 141  # 128 + SIGPIPE


def run(
    argv: Sequence[str],
    environ: Mapping[str, str],
    *,
    stdin: BinaryIO | None,
    stdout: BinaryIO | None,
    stderr: TextIO | None,
) -> int:
    """Runs the command and returns its exit code: 0, 1 for a failure, 2 for wrong usage."""
    # A process may be started without standard streams (`<&-`, `>&-`, `2>&-`); Python has None for them.
    streams = Streams(
        stdin or getattr(sys.stdin, "buffer", None),
        stdout or getattr(sys.stdout, "buffer", None),
        stderr or sys.stderr or io.StringIO(),
    )
    arguments = _arguments(argv, environ)
    try:
        exit_code: int = arguments.run(arguments, streams)
    except (TranslaneError, FileError, CommandError) as error:
        print(f"translane: {error}", file=streams.stderr)
        _forget_unwritten(stdout)
        return 1
    except BrokenPipeError:
        _forget_unwritten(stdout)
        return _BROKEN_PIPE
    return exit_code


def _forget_unwritten(stdout: BinaryIO | None) -> None:
    """Keeps Python from writing again, at exit, what the process' own standard output does not take."""
    if stdout is not None or sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _arguments(argv: Sequence[str], environ: Mapping[str, str]) -> argparse.Namespace:
    """The arguments of the command, with what they leave out taken from the environment. Exits on wrong usage."""
    parser = argparse.ArgumentParser("translane", description="Client of the Translane translation service.")
    parser.add_argument("--version", action="version", version=f"translane {version('translane')}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    for name, command, help, description in (
        (
            "translate",
            translate_command,
            "translate texts, one on each line",
            "Translates the TEXTs, or each line of a file or of standard input, in order.",
        ),
        (
            "score",
            score_command,
            "tell how probable the model finds given translations",
            "Writes the log-probability of the TARGET, or of each target in a file, in order.",
        ),
        (
            "models",
            models_command,
            "list the server's models and limits",
            "Lists the models the server has loaded, and its limits.",
        ),
        (
            "bench",
            bench_command,
            "put load on a server and measure its latency",
            "Sends sentences at the times of a Poisson process, or from a number of clients, and tells how long the "
            "answers took; or searches the highest rate that keeps the latency within a bound.",
        ),
    ):
        subparser = commands.add_parser(name, help=help, description=description)
        flags = _server_flags(subparser, retries=command is not bench_command)
        command.add_flags(subparser, flags)
        subparser.set_defaults(run=command.run, parser=subparser, flags=flags)

    arguments = parser.parse_args(argv)
    arguments.flags.fill(arguments, environ)
    return arguments


def _server_flags(parser: argparse.ArgumentParser, *, retries: bool) -> Flags:
    flags = Flags(parser)
    flags.add("--server", default="localhost:50051", type=_server, metavar="HOST:PORT", help="address of the server")
    if not retries:
        return flags
    flags.add("--timeout", type=seconds, metavar="SECONDS", help="deadline of each request, retries included")
    flags.add("--attempts", type=count, default=RetryPolicy().attempts, metavar="N", help="attempts at each request")
    return flags


def _server(text: str) -> str:
    try:
        return target_of(unicode(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
