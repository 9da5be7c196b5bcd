"""The parts that commands with many inputs share: flags, inputs, client and output."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from translane.command_error import CommandError
from translane.progress import Progress, is_terminal
from translane_client.cli.connection_flags import explained
from translane_client.cli.decoding_flags import flag_of, with_flags
from translane_client.cli.flags import Flags, count, seconds, unicode
from translane_client.cli.inputs import STANDARD, FileError, Inputs, StandardStreams, is_same
from translane_client.cli.outputs import LineWriter
from translane_client.retry import RetryPolicy

if TYPE_CHECKING:
    from translane.errors import TranslaneError
    from translane_client.client import Client

Answer = TypeVar("Answer")

_VIOLATIONS_SHOWN = 3  # each line of a request may be a violation; the message shows no more than these


def add_file_flags(flags: Flags, *, input: str, output: str) -> None:
    """Declares -i and -o; `input` and `output` say what the files hold."""
    flags.add("-i", "--input", metavar="FILE", type=Path, help=f"{input}; - is standard input")
    flags.add("-o", "--output", metavar="FILE", type=Path, help=f"{output}; - is standard output")


def add_call_flags(flags: Flags) -> None:
    """Declares the flags that bound a call."""
    flags.add("--timeout", type=seconds, metavar="SECONDS", help="deadline of each request, retries included")
    flags.add("--attempts", type=count, default=RetryPolicy().attempts, metavar="N", help="attempts at each request")


def add_request_flags(flags: Flags) -> None:
    """Declares the flags that choose a model, and cut the inputs into requests."""
    add_model_flags(flags)
    flags.add("--batch-size", type=count, metavar="N", help="lines in one request (default: 64, or the server's limit)")
    flags.add("--concurrency", type=count, default=4, metavar="N", help="requests under way at a time")


def add_model_flags(flags: Flags) -> None:
    """Declares the flags that choose among the server's models and their languages."""
    for name, metavar, help in (
        ("--model", "NAME", "model to use; needed where the server has several"),
        ("--source-language", "TAG", "BCP-47 tag; needed where the model has several source languages"),
        ("--target-language", "TAG", "BCP-47 tag; needed where the model has several target languages"),
    ):
        flags.add(name, type=unicode, default="", metavar=metavar, help=help)


def request_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """What a request says beside its texts and decoding options."""
    names = ("model", "source_language", "target_language", "priority", "timeout")
    return {name: getattr(arguments, name) for name in names if hasattr(arguments, name)}


def client_of(arguments: argparse.Namespace, inputs: Inputs[Any] | None = None) -> Client:
    """The client that the arguments describe."""
    from translane_client.client import Client

    retry = RetryPolicy(attempts=arguments.attempts)
    if inputs is None:
        return Client(arguments.connection, retry=retry)
    if inputs.typed:  # a person who types waits for each line's answer
        return Client(arguments.connection, retry=retry, batch_size=1, concurrency=1)
    return Client(arguments.connection, retry=retry, batch_size=arguments.batch_size, concurrency=arguments.concurrency)


def output_path(arguments: argparse.Namespace, inputs: Inputs[Any], *, may_be_input: bool = False) -> Path | None:
    """The file of -o; None for standard output. FileError: the file is an input as well, and may not be."""
    path: Path | None = None if arguments.output in (None, STANDARD) else arguments.output
    if path and not may_be_input and any(is_same(file, path) for file in inputs.files):
        raise FileError(f"{path} is the input and cannot be the output as well")
    return path


def line_output(
    arguments: argparse.Namespace, streams: StandardStreams, inputs: Inputs[Any], *, keep_breaks: bool = False
) -> LineWriter:
    """An output of lines. FileError: the output is an input as well, or standard output is closed."""
    path = output_path(arguments, inputs)
    return LineWriter(path, None if path else streams.stdout, keep_breaks=keep_breaks)


def write_all(
    arguments: argparse.Namespace,
    streams: StandardStreams,
    inputs: Inputs[Any],
    writer: LineWriter,
    answers: Iterable[Answer],
    write: Callable[[int, Answer], None],
) -> None:
    """Calls `write` with each answer's number, from 0, and the answer. A terminal sees the progress."""
    from translane.errors import TranslaneError

    def place(field: str) -> str | None:
        match = re.match(r"(?:texts|inputs)\[(\d+)\](\.(?:source|target)\b)?", field)
        if match:
            return inputs.place(int(match[1]), match[2] or "")
        return inputs.place(index, "") if field == "text" else None

    # Lines on the same terminal would disturb the bar.
    quiet = not inputs.files or inputs.typed or (writer.is_standard and is_terminal(streams.stdout))
    stream, say = (None, None) if quiet else (streams.stderr, streams.say)
    progress = Progress("sentences", total=inputs.size, stream=stream, say=say)
    index = 0
    with writer:
        try:
            for index, answer in enumerate(answers):
                write(index, answer)
                progress.add(1, inputs.sizes.popleft())
        except (TranslaneError, FileError) as error:
            message = message_of(error, arguments, place) if isinstance(error, TranslaneError) else str(error)
            if inputs.files:  # who gave arguments sees the lines
                lines = "1 line was" if writer.count == 1 else f"{writer.count} lines were"
                message += f"; {lines} written to {writer.name}"
            raise CommandError(message) from error
        finally:
            progress.close()


def message_of(error: TranslaneError, arguments: argparse.Namespace, place: Callable[[str], str | None]) -> str:
    """The error's message, with the place or the flag at fault where the error names a field.

    `place` returns the place in the input that a field stands for; None if it stands for none.
    """
    if not error.violations:
        return explained(error)
    messages = list(
        dict.fromkeys(
            f"{place(each.field) or flag_of(each.field, arguments) or each.field}: {with_flags(each.description)}"
            if each.description
            else str(error)
            for each in error.violations
        )
    )
    if (more := len(messages) - _VIOLATIONS_SHOWN) > 0:
        messages[_VIOLATIONS_SHOWN:] = [f"and {more} more"]
    return "; ".join(messages)
