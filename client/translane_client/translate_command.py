"""`translane translate`."""

from __future__ import annotations

import argparse
import json
import os
import re
import stat
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from translane_client.client import Client
from translane_client.errors import TranslaneError
from translane_client.flags import Flags, count, integer, unicode
from translane_client.lines import FileError, LineWriter, texts_of
from translane_client.progress import Progress
from translane_client.retry import RetryPolicy
from translane_client.streams import Streams
from translane_client.types import Translation

_STDIN = "standard input"


class TranslateError(Exception):
    """A translation that ended early; `str()` is one sentence that tells where, and how much was written."""


def add_flags(parser: argparse.ArgumentParser, flags: Flags) -> None:
    """Declares the arguments of the command."""
    parser.add_argument("texts", nargs="*", metavar="TEXT", help="a text to translate; none: read -i or standard input")
    flags.add("-i", "--input", metavar="FILE", type=Path, help="file of texts, one on each line; - is standard input")
    flags.add("-o", "--output", metavar="FILE", type=Path, help="file for the translations; - is standard output")
    flags.add(
        "--model",
        type=unicode,
        default="",
        metavar="NAME",
        help="model to translate with; needed where the server has many",
    )
    flags.add(
        "--source-language", type=unicode, default="", metavar="TAG", help="BCP-47 tag; needed where the model has many"
    )
    flags.add(
        "--target-language", type=unicode, default="", metavar="TAG", help="BCP-47 tag; needed where the model has many"
    )
    flags.add("--max-length", type=count, metavar="N", help="most tokens of a translation")
    flags.add("--priority", type=integer, default=0, metavar="N", help="higher ones are translated first")
    flags.add("--batch-size", type=count, metavar="N", help="lines in one request; 64 or the server's limit if unset")
    flags.add("--concurrency", type=count, default=4, metavar="N", help="requests under way at a time")
    flags.add("--json", action=argparse.BooleanOptionalAction, default=False, help="write one JSON object per text")


def usage_problem(arguments: argparse.Namespace) -> str | None:
    """What is wrong with the arguments taken together, before the environment is looked at."""
    if arguments.texts and arguments.input is not None:
        return "TEXT and -i exclude each other"
    return None


def run(arguments: argparse.Namespace, streams: Streams) -> int:
    """Translates TEXTs, or the lines of a file.

    Raises:
        FileError: a file cannot be opened.
        TranslateError: the translation ended early.
    """
    output = None if arguments.output in (None, Path("-")) else arguments.output
    stdout = None if output else streams.stdout
    with ExitStack() as stack:
        if arguments.texts:
            return _translate(arguments, _Arguments(arguments.texts), LineWriter(output, stdout), None)
        if arguments.input in (None, Path("-")):
            file, name = streams.stdin, _STDIN
        else:
            file, name = stack.enter_context(_opened(arguments.input)), str(arguments.input)
        if output is not None and _is_same(file, output):
            raise FileError(f"{output} is the input and cannot be the output as well")
        progress = None
        if _is_terminal(streams.stderr) and not _is_terminal(file) and (output or not _is_terminal(stdout)):
            progress = Progress(streams.stderr, _size(file))
        return _translate(arguments, _Lines(file, name), LineWriter(output, stdout), progress)


def _translate(
    arguments: argparse.Namespace, source: _Arguments | _Lines, output: LineWriter, progress: Progress | None
) -> int:
    client = Client(
        arguments.server,
        retry=RetryPolicy(attempts=arguments.attempts),
        batch_size=1 if source.typed else arguments.batch_size,  # a person who types waits for each line's answer
        concurrency=1 if source.typed else arguments.concurrency,
    )
    translations = _translations(client, arguments, source.texts())
    with client, output:
        try:
            for translation in translations:
                output.write(_json(translation) if arguments.json else translation.text)
                size = source.sizes.popleft()
                if progress:
                    progress.advance(size)
        except TranslaneError as error:
            raise TranslateError(f"{_located(error, source)}{source.written(output)}") from error
        except FileError as error:
            raise TranslateError(f"{error}{source.written(output)}") from error
        finally:
            if progress:
                progress.close()
    return 0


def _translations(client: Client, arguments: argparse.Namespace, texts: Iterator[str]) -> Iterator[Translation]:
    """The translations to come. Exits where the arguments make no request."""
    try:
        return client.translate_iter(
            texts,
            model=arguments.model,
            source_language=arguments.source_language,
            target_language=arguments.target_language,
            priority=arguments.priority,
            timeout=arguments.timeout,
            max_length=arguments.max_length,
        )
    except (TypeError, ValueError) as error:  # the latter of which a UnicodeError is
        parser: argparse.ArgumentParser = arguments.parser
        parser.error(str(error))


class _Arguments:
    """Texts given on the command line."""

    typed = False

    def __init__(self, texts: list[str]) -> None:
        self._texts = texts
        self.sizes = deque(len(text) for text in texts)

    def texts(self) -> Iterator[str]:
        return iter(self._texts)

    def place(self, index: int) -> str:
        return f"text {index + 1}"

    def written(self, _: LineWriter) -> str:
        return ""


class _Lines:
    """Texts on the lines of a file."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._name = name
        self.sizes: deque[int] = deque()
        """Bytes of each line that was read and not yet written."""
        self.typed = _is_terminal(file)

    def texts(self) -> Iterator[str]:
        for text, size in texts_of(self._file, self._name):
            self.sizes.append(size)
            yield text

    def place(self, index: int) -> str:
        return f"{self._name}, line {index + 1}"

    def written(self, output: LineWriter) -> str:
        lines = "1 line was" if output.count == 1 else f"{output.count} lines were"
        return f"; {lines} written to {output.name}"


def _located(error: TranslaneError, source: _Arguments | _Lines) -> str:
    """The message, with the line where it is about one text."""
    match = re.fullmatch(r"texts\[(\d+)\].*", error.field or "")
    return f"{source.place(int(match[1]))}: {error.violations[0].description or error}" if match else str(error)


def _json(translation: Translation) -> str:
    shown = {
        "text": translation.text,
        "score": translation.score,
        "finish_reason": translation.finish_reason,
        "source_tokens": translation.source_tokens,
    }
    return json.dumps(shown, ensure_ascii=False)


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}") from error


def _is_terminal(stream: object) -> bool:
    isatty = getattr(stream, "isatty", None)
    return bool(isatty and isatty())


def _size(file: BinaryIO) -> int | None:
    """Bytes of a regular file."""
    status = _regular(file)
    return status.st_size if status else None


def _is_same(file: BinaryIO, path: Path) -> bool:
    """Whether `file` is the regular file at `path`, which opening for writing would empty."""
    status = _regular(file)
    return status is not None and path.exists() and os.path.samestat(status, path.stat())


def _regular(file: BinaryIO) -> os.stat_result | None:
    try:
        status = os.fstat(file.fileno())
    except OSError:  # which io.UnsupportedOperation is: a file in memory
        return None
    return status if stat.S_ISREG(status.st_mode) else None
