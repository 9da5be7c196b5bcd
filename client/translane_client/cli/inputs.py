"""The inputs of a command, one by one: command-line arguments, or the lines of files."""

from __future__ import annotations

import itertools
import os
import stat
from codecs import BOM_UTF8
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import BinaryIO, Generic, NamedTuple, TextIO, TypeVar

from translane.command_error import CommandError, escaped
from translane.options import Term
from translane.progress import is_terminal

Item = TypeVar("Item")

LONGEST_LINE = 1 << 20
"""Bytes of the longest line. No text is longer, and a file without line ends must not fill the memory."""

STANDARD = Path("-")  # names standard input or standard output

printable = partial(escaped, most=4000)
"""A message from elsewhere, on a line of a terminal."""


class FileError(CommandError):
    """A file cannot be read or written; `str()` is one sentence that names the file."""


@contextmanager
def naming(name: object) -> Iterator[None]:
    """Raises FileError, with the name of the file, in place of an OSError. A pipe without a reader is left as it is."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise FileError(f"{name}: {error.strerror or error}") from error


class StandardStreams(NamedTuple):
    """The standard streams: bytes for texts, which are UTF-8 whatever the locale, and text for messages to people.

    None where the command was started without the stream.
    """

    command: str
    """The name of the command, with which messages begin."""
    stdin: BinaryIO | None
    stdout: BinaryIO | None
    stderr: TextIO

    def say(self, line: str) -> None:
        print(f"translane {self.command}: {printable(line)}", file=self.stderr, flush=True)


@dataclass
class Inputs(Generic[Item]):
    """Items in order, such as texts. Each has a place that an error can name."""

    sized: Iterable[tuple[Item, int]]  # the items, each with the bytes that it takes in its file
    place: Callable[[int, str], str]
    """Returns the place of an item, by its number from 0, or of a part of it: ".source" or ".target"."""
    files: Sequence[BinaryIO] = ()  # the files that the items come from; none, where they come from the command line
    name: str = ""  # the name of the file, for messages
    sizes: deque[int] = field(default_factory=deque)
    """Bytes of each item that was read and whose answer is not yet written."""

    @property
    def typed(self) -> bool:
        """Whether a person types the items."""
        return any(map(is_terminal, self.files))

    @property
    def size(self) -> int | None:
        """Bytes of all files; None where that is not known."""
        sizes = [_regular(file) for file in self.files]
        return sum(each.st_size for each in sizes if each) if sizes and all(sizes) else None

    def items(self) -> Iterator[Item]:
        """Reads the items, once. FileError: a file cannot be read, or a line holds no item."""
        for item, size in self.sized:
            self.sizes.append(size)
            yield item


def arguments_of(items: Iterable[Item], what: str) -> Inputs[Item]:
    """Items that are given on the command line; `what` names an item in errors."""
    return Inputs(((item, 1) for item in items), lambda index, part: part.removeprefix(".") or f"{what} {index + 1}")


def text_of(text: str, _: str) -> str:
    """The text itself, of a line that is one."""
    return text


def pair_of(text: str, place: str) -> tuple[str, str]:
    """Source and target of a line, with a tab between. FileError: the line is another."""
    source, *targets = text.split("\t")
    if len(targets) != 1:
        tabs = f"{len(targets)} tabs" if targets else "no tab"
        raise FileError(f"{place}: {tabs}, where one is needed between source and target")
    return source, targets[0]


def lines_of(
    path: Path | None, streams: StandardStreams, stack: ExitStack, item_of: Callable[[str, str], Item]
) -> Inputs[Item]:
    """The lines of standard input, or of a file, which `stack` closes.

    `item_of` makes an item of a line's text and place, or raises FileError.
    """
    if path in (None, STANDARD):
        if streams.stdin is None:
            raise FileError("standard input is closed")
        file, name = streams.stdin, "standard input"
    else:
        file, name = stack.enter_context(_opened(path)), str(path)

    def place(index: int, part: str) -> str:
        return f"{name}, line {index + 1}{part.replace('.', ', ')}"

    sized = ((item_of(text, place(index, "")), size) for index, (text, size) in enumerate(texts_of(file, name)))
    return Inputs(sized, place, [file], name)


def parallel(sources: Inputs[str], targets: Inputs[str]) -> Inputs[tuple[str, str]]:
    """Pairs of a source and a target: sources on the lines of one file, targets on the lines of another.

    Reading them raises FileError where one file has more lines than the other.
    """

    def pairs() -> Iterator[tuple[tuple[str, str], int]]:
        sides = sources.items(), targets.items()
        for index, (source, target) in enumerate(itertools.zip_longest(*sides)):
            if source is None or target is None:
                longer = index + 1 + sum(1 for _ in (sides[1] if source is None else sides[0]))
                first, second = (index, longer) if source is None else (longer, index)
                raise FileError(f"{sources.name} has {_lines(first)} and {targets.name} {_lines(second)}")
            yield (source, target), sources.sizes.popleft() + targets.sizes.popleft()

    def place(index: int, part: str) -> str:
        return (targets if part == ".target" else sources).place(index, "")

    return Inputs(pairs(), place, [*sources.files, *targets.files])


def _lines(count: int) -> str:
    return "1 line" if count == 1 else f"{count} lines"


def _opened(path: Path) -> BinaryIO:
    with naming(path):
        return path.open("rb")


def texts_of(file: BinaryIO, name: str) -> Iterator[tuple[str, int]]:
    r"""Each line's text, and the line's length in bytes with its end.

    A line ends with "\n" or "\r\n" and nothing else: "\x0b", "\x85" or U+2028 are part of a text. A byte order mark at
    the beginning of the file is no part of a text.
    """
    for number in itertools.count(1):
        with naming(f"{name}, line {number}"):
            raw = file.readline(LONGEST_LINE + len(BOM_UTF8) + len(b"\r\n"))
        line = raw.removeprefix(BOM_UTF8) if number == 1 else raw
        if not line:
            return
        text = line.removesuffix(b"\n").removesuffix(b"\r")
        if len(text) > LONGEST_LINE:
            raise FileError(f"{name}, line {number}: longer than {LONGEST_LINE} bytes")
        try:
            yield text.decode(), len(raw)
        except UnicodeDecodeError as error:
            raise FileError(f"{name}, line {number}: not valid UTF-8 (byte {error.start + 1} of the line)") from error


def read_terms(path: Path) -> dict[int, Term]:
    """The terms of a UTF-8 file by their lines, from 1. Blank lines, and lines that begin with #, are left out."""
    terms = {}
    with _opened(path) as file:
        for number, (text, _) in enumerate(texts_of(file, str(path)), start=1):
            if text.startswith("#") or not text.strip():
                continue
            try:
                terms[number] = Term.of_line(text)
            except ValueError as error:
                raise FileError(f"{path}, line {number}: {error}") from None
    return terms


def is_same(file: BinaryIO, path: Path) -> bool:
    """Whether `file` is the regular file at `path`: opening `path` for writing would empty `file`."""
    status = _regular(file)
    return status is not None and path.exists() and os.path.samestat(status, path.stat())


def _regular(file: BinaryIO) -> os.stat_result | None:
    try:
        status = os.fstat(file.fileno())
    except OSError:  # also io.UnsupportedOperation: a file in memory
        return None
    return status if stat.S_ISREG(status.st_mode) else None
