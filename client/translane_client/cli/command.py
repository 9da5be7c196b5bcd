"""The command line of `translane`: its commands, their arguments, and the exit codes."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Mapping, Sequence
from typing import BinaryIO, TextIO

from translane.arguments import Parser
from translane_client.cli import bench, connection_flags, decoding_flags, models, score, translate
from translane_client.cli.bulk import CommandError
from translane_client.cli.flags import ENV_PREFIX, Flags, count, seconds
from translane_client.cli.printable import printable
from translane_client.cli.standard_streams import StandardStreams
from translane_client.cli.text_files import FileError
from translane_client.errors import TranslaneError
from translane_client.retry import RetryPolicy

_BROKEN_PIPE = 141  # 128 + SIGPIPE


def run(
    argv: Sequence[str],
    environ: Mapping[str, str],
    *,
    stdin: BinaryIO | None,
    stdout: BinaryIO | None,
    stderr: TextIO | None,
) -> int:
    """Runs the command; returns the exit code: 0 done, 1 failed, 2 wrong usage, 141 nobody reads the output."""
    # Python has None for a standard stream that the process was started without (`<&-`, `>&-`, `2>&-`).
    streams = StandardStreams(
        stdin or getattr(sys.stdin, "buffer", None),
        stdout or getattr(sys.stdout, "buffer", None),
        stderr or sys.stderr or io.StringIO(),
    )
    arguments = parse_arguments(argv, environ)
    try:
        arguments.connection = connection_flags.connection_of(arguments)
    except ValueError as error:
        print(f"translane: {printable(str(error))}", file=streams.stderr)
        return 1
    try:
        exit_code: int = arguments.run(arguments, streams)
    except (TranslaneError, FileError, CommandError) as error:
        message = connection_flags.explained(error) if isinstance(error, TranslaneError) else str(error)
        print(f"translane: {printable(message)}", file=streams.stderr)
        _forget_unwritten(stdout)
        return 1
    except BrokenPipeError:
        _forget_unwritten(stdout)
        return _BROKEN_PIPE
    return exit_code


def _forget_unwritten(stdout: BinaryIO | None) -> None:
    """Keeps Python from a second failure at exit, when it would write the rest to the process's standard output."""
    if stdout is not None or sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def parse_arguments(argv: Sequence[str], environ: Mapping[str, str]) -> argparse.Namespace:
    """The command's arguments; the environment, or else a default, fills those left out. Exits on wrong usage."""
    parser = Parser("translane", description="Client of the Translane translation service.")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    for name, command, operands, help, description in (
        (
            "translate",
            translate,
            "[TEXT ...]",
            "translate texts, or the lines of a file",
            "Translates the TEXTs, or each line of a file or of standard input, in order.",
        ),
        (
            "score",
            score,
            "[SOURCE TARGET]",
            "score given translations: how probable the model finds them",
            "Writes the log-probability of the TARGET, or of each target in a file, in order.",
        ),
        ("models", models, "", "list the server's models and limits", "Lists the server's models and limits."),
        (
            "bench",
            bench,
            "",
            "put load on a server and measure its latency",
            "Sends sentences at given rates, or from a number of clients, and measures how long the answers take; or"
            " searches the highest rate that keeps a latency.",
        ),
    ):
        subparser = commands.add_parser(
            name,
            help=help,
            description=description,
            usage=f"translane {name} [options] {operands}".rstrip(),
            epilog=f"Every flag has an environment twin: {ENV_PREFIX}SERVER is --server. A flag wins over its twin.",
        )
        flags = _server_flags(subparser, retries=command is not bench)
        command.add_flags(subparser, flags)
        subparser.set_defaults(run=command.run, parser=subparser, flags=flags)

    arguments = parser.parse_args(decoding_flags.with_values(argv))
    arguments.flags.fill(arguments, environ)
    return arguments


def _server_flags(parser: Parser, *, retries: bool) -> Flags:
    flags = Flags(parser)
    flags.section("connection")
    connection_flags.add_flags(flags)
    if not retries:
        return flags
    flags.add("--timeout", type=seconds, metavar="SECONDS", help="deadline of each request, retries included")
    flags.add("--attempts", type=count, default=RetryPolicy().attempts, metavar="N", help="attempts at each request")
    return flags
