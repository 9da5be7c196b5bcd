"""What the commands that go through many inputs share."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

from translane_client.client import Client
from translane_client.decoding_flags import flag_of, with_flags
from translane_client.errors import TranslaneError
from translane_client.flags import Flags, count, unicode
from translane_client.lines import FileError, LineWriter, opened
from translane_client.progress import Progress
from translane_client.retry import RetryPolicy
from translane_client.sources import Lines, Source, is_same, is_terminal
from translane_client.streams import Streams

Answer = TypeVar("Answer")

_STANDARD = Path("-")
_VIOLATIONS_TOLD = 3
"""Each line of a request may be one; a sentence is not to be as long as that."""


class CommandError(Exception):
    """A command that ended early; `str()` is one sentence that tells where, and how much was written."""


def add_flags(flags: Flags, *, input: str, output: str) -> None:
    """Declares the flags of files and requests; `input` and `output` say what the files hold."""
    flags.add("-i", "--input", metavar="FILE", type=Path, help=f"{input}; - is standard input")
    flags.add("-o", "--output", metavar="FILE", type=Path, help=f"{output}; - is standard output")
    add_model_flags(flags)
    flags.add("--batch-size", type=count, metavar="N", help="lines in one request; 64 or the server's limit if unset")
    flags.add("--concurrency", type=count, default=4, metavar="N", help="requests under way at a time")


def add_model_flags(flags: Flags) -> None:
    """Declares the flags that choose among the server's models and their languages."""
    for name, metavar, help in (
        ("--model", "NAME", "model to use; needed where the server has many"),
        ("--source-language", "TAG", "BCP-47 tag; needed where the model has many"),
        ("--target-language", "TAG", "BCP-47 tag; needed where the model has many"),
    ):
        flags.add(name, type=unicode, default="", metavar=metavar, help=help)


def lines_of(path: Path | None, streams: Streams, stack: ExitStack) -> Lines:
    """The lines of a file, which `stack` closes, or of standard input. FileError: it cannot be opened."""
    if path is None or path == _STANDARD:
        return Lines(streams.stdin, "standard input")
    return Lines(stack.enter_context(opened(path)), str(path))


def client_of(arguments: argparse.Namespace, source: Source[Any]) -> Client:
    """The client that the arguments describe."""
    return Client(
        arguments.server,
        retry=RetryPolicy(attempts=arguments.attempts),
        batch_size=1 if source.typed else arguments.batch_size,  # a person who types waits for each line's answer
        concurrency=1 if source.typed else arguments.concurrency,
    )


class Output:
    """Where a command writes the answers to a source, and how it shows on a terminal how far it has come.

    FileError: it is the input as well, or standard output is closed.
    """

    def __init__(
        self, arguments: argparse.Namespace, streams: Streams, source: Source[Any], *, keep_breaks: bool = False
    ) -> None:
        path = None if arguments.output in (None, _STANDARD) else arguments.output
        stdout = None if path else streams.stdout
        if path and any(is_same(file, path) for file in source.files):
            raise FileError(f"{path} is the input and cannot be the output as well")
        self.writer = LineWriter(path, stdout, keep_breaks=keep_breaks)
        self._arguments = arguments
        self._source = source
        self._progress: Progress | None = None
        if source.files and is_terminal(streams.stderr) and not any(map(is_terminal, [*source.files, stdout])):
            self._progress = Progress(streams.stderr, source.size)

    def write_all(self, answers: Iterable[Answer], write: Callable[[int, Answer], None]) -> None:
        """Writes each answer, by its number from 0.

        Raises:
            CommandError: reading, an answer or writing failed.
        """
        index = 0
        with self.writer as writer:
            try:
                for index, answer in enumerate(answers):
                    write(index, answer)
                    size = self._source.sizes.popleft()
                    if self._progress:
                        self._progress.advance(size)
            except TranslaneError as error:
                raise CommandError(f"{self._told(error, index)}{self._source.written(writer)}") from error
            except FileError as error:
                raise CommandError(f"{error}{self._source.written(writer)}") from error
            finally:
                if self._progress:
                    self._progress.close()

    def _told(self, error: TranslaneError, index: int) -> str:
        """The message: with the line or the flag that it is about, where it is about one."""
        if not error.violations:
            return str(error)
        told = list(
            dict.fromkeys(
                f"{self._place(violation.field, index)}: {with_flags(violation.description)}"
                if violation.description
                else str(error)
                for violation in error.violations
            )
        )
        more = len(told) - _VIOLATIONS_TOLD
        told = told[:_VIOLATIONS_TOLD]
        return "; ".join([*told, f"and {more} more"] if more > 0 else told)

    def _place(self, field: str, index: int) -> str:
        match = re.match(r"(?:texts|inputs)\[(\d+)\](\.(?:source|target)\b)?", field)
        if match:
            return self._source.place(int(match[1]), match[2] or "")
        return self._source.place(index) if field == "text" else flag_of(field, self._arguments) or field
