"""The inputs of a command, one by one: command-line arguments, or the lines of files."""

from __future__ import annotations

import os
import stat
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import BinaryIO, Generic, Protocol, TypeVar

from translane_client.cli.text_files import FileError, texts_of

Item = TypeVar("Item")


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


class Lines(Inputs[Item]):
    """Items on the lines of a file; `item_of` makes an item of a line's text and place, or raises FileError."""

    def __init__(self, file: BinaryIO, name: str, item_of: Callable[[str, str], Item]) -> None:
        super().__init__(file)
        self._file = file
        self._item_of = item_of
        self.name = name
        self.typed = is_terminal(file)

    def items(self) -> Iterator[Item]:
        """Reads the lines."""
        for index, (text, size) in enumerate(texts_of(self._file, self.name)):
            self.sizes.append(size)
            yield self._item_of(text, self.place(index))

    def place(self, index: int, part: str = "") -> str:
        """The file and the line, and the side where there is a part."""
        return f"{self.name}, line {index + 1}{part.replace('.', ', ')}"


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


class ParallelLines(Inputs[tuple[str, str]]):
    """Pairs of a source and a target: sources on the lines of one file, targets on the lines of another."""

    def __init__(self, sources: Lines[str], targets: Lines[str]) -> None:
        super().__init__(*sources.files, *targets.files)
        self._sources = sources
        self._targets = targets

    def items(self) -> Iterator[tuple[str, str]]:
        """Reads the pairs. FileError: one file has more lines than the other."""
        sides = sources, targets = self._sources.items(), self._targets.items()
        for index, (source, target) in enumerate(zip_longest(*sides)):
            if source is None or target is None:
                longer = index + 1 + sum(1 for _ in (targets if source is None else sources))
                first, second = (index, longer) if source is None else (longer, index)
                raise FileError(f"{self._sources.name} has {_lines(first)} and {self._targets.name} {_lines(second)}")
            self.sizes.append(self._sources.sizes.popleft() + self._targets.sizes.popleft())
            yield source, target

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
