"""The inputs of a command, one by one: command-line arguments, or the lines of files."""

from __future__ import annotations

import os
import stat
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import BinaryIO, Generic, Protocol, TypeVar

from translane_client.cli.text_files import FileError, texts_of

Item = TypeVar("Item", covariant=True)


class Written(Protocol):
    """What says how much was written."""

    name: str
    """Where, for messages."""
    count: int


class Inputs(ABC, Generic[Item]):
    """Items in order. Each item has a place that an error can name."""

    typed = False
    """Whether a person types the items."""

    def __init__(self, *files: BinaryIO) -> None:
        self.files = files
        self.sizes: deque[int] = deque()
        """Bytes of each item that was read and whose answer is not yet written."""

    @property
    def size(self) -> int | None:
        """Bytes of all files; None where that is not known."""
        sizes = [_regular(file) for file in self.files]
        return sum(each.st_size for each in sizes if each) if sizes and all(sizes) else None

    @abstractmethod
    def items(self) -> Iterator[Item]:
        """Reads the items, once. FileError: a file cannot be read, or a line holds no item."""

    @abstractmethod
    def place(self, index: int, part: str = "") -> str:
        """The place of item `index`, or of a part of it: ".source" or ".target"."""

    def written(self, output: Written) -> str:
        """The end of a sentence about a failure: how many lines were written."""
        lines = "1 line was" if output.count == 1 else f"{output.count} lines were"
        return f"; {lines} written to {output.name}"


class Arguments(Inputs[Item]):
    """Items that are given on the command line; `what` names an item in errors."""

    def __init__(self, items: list[Item], what: str) -> None:
        super().__init__()
        self._items = items
        self._what = what

    def items(self) -> Iterator[Item]:
        """The items as they were given."""
        for item in self._items:
            self.sizes.append(1)
            yield item

    def place(self, index: int, part: str = "") -> str:
        """The number of the item from 1, or the part where there is one."""
        return part.removeprefix(".") or f"{self._what} {index + 1}"

    def written(self, output: Written) -> str:  # noqa: ARG002
        """Nothing: the person who gave the arguments sees the lines."""
        return ""


class Lines(Inputs[str]):
    """Texts on the lines of a file."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        super().__init__(file)
        self._file = file
        self.name = name
        self.typed = is_terminal(file)

    def items(self) -> Iterator[str]:
        """Reads the lines."""
        for text, size in texts_of(self._file, self.name):
            self.sizes.append(size)
            yield text

    def place(self, index: int, part: str = "") -> str:  # noqa: ARG002 - a line is one text
        """The file and the line."""
        return f"{self.name}, line {index + 1}"


class TabbedPairs(Inputs[tuple[str, str]]):
    """Pairs of source and target on the lines of a file, with a tab between the two."""

    def __init__(self, lines: Lines) -> None:
        super().__init__(*lines.files)
        self._lines = lines
        self.sizes = lines.sizes
        self.typed = lines.typed

    def items(self) -> Iterator[tuple[str, str]]:
        """Reads the pairs. FileError: a line holds no pair."""
        for index, text in enumerate(self._lines.items()):
            source, *targets = text.split("\t")
            if len(targets) != 1:
                tabs = f"{len(targets)} tabs" if targets else "no tab"
                raise FileError(f"{self._lines.place(index)}: {tabs}, where one is needed between source and target")
            yield source, targets[0]

    def place(self, index: int, part: str = "") -> str:
        """The file and the line, and the side where there is a part."""
        return self._lines.place(index) + part.replace(".", ", ")


class ParallelLines(Inputs[tuple[str, str]]):
    """Pairs of a source and a target: sources on the lines of one file, targets on the lines of another."""

    def __init__(self, sources: Lines, targets: Lines) -> None:
        super().__init__(*sources.files, *targets.files)
        self._sources = sources
        self._targets = targets

    def items(self) -> Iterator[tuple[str, str]]:
        """Reads the pairs. FileError: one file has more lines than the other."""
        sources = targets = 0
        for source, target in zip_longest(self._sources.items(), self._targets.items()):
            sources += source is not None
            targets += target is not None
            size = sum(lines.sizes.popleft() for lines in (self._sources, self._targets) if lines.sizes)
            if source is not None and target is not None:
                self.sizes.append(size)
                yield source, target
        if sources != targets:  # the loop has read the longer file to its end, so that the error tells its length
            raise FileError(f"{self._sources.name} has {_lines(sources)} and {self._targets.name} {_lines(targets)}")

    def place(self, index: int, part: str = "") -> str:
        """The file of the part's side, and the line."""
        return (self._targets if part == ".target" else self._sources).place(index)


def _lines(count: int) -> str:
    return "1 line" if count == 1 else f"{count} lines"


def is_terminal(stream: object) -> bool:
    """Whether the stream is a terminal, with a person at the other end."""
    isatty = getattr(stream, "isatty", None)
    return bool(isatty and isatty())


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
