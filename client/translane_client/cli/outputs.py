"""What a command writes: lines of answers, notes for people, and how far it is."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from secrets import token_hex
from types import TracebackType
from typing import BinaryIO, Self

from translane.results import TermOutcome, TermReport, Treatment
from translane_client.cli.inputs import FileError, naming

_MOST_NOTES = 10  # notes that are shown; of the rest, only the number is

_PROBLEMS = {
    TermOutcome.TOO_MANY: "the text has more terms than a sentence can keep",
    TermOutcome.MISSED: "the translation ended before it",
    TermOutcome.PRESERVED: "it occurs only in what is not translated",
}


class LineWriter:
    """Writes texts to a file, or else to standard output, one on each line, and counts the lines.

    The first line opens the file. A text keeps its line breaks with `keep_breaks`; otherwise each becomes a space.
    """

    def __init__(self, path: Path | None, stdout: BinaryIO | None, *, keep_breaks: bool = False) -> None:
        if path is None and stdout is None:
            raise FileError("standard output is closed")
        self.name = "standard output" if path is None else str(path)
        self.count = 0
        self._keep_breaks = keep_breaks
        self._path = path
        self.is_standard = path is None
        self._file: BinaryIO | None = stdout if path is None else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._path is None:
            return
        if kind is None:
            self._open()  # an output without lines is a file nevertheless
        if self._file is not None:
            try:
                self._file.close()
            except OSError as problem:
                if kind is None:  # else the error under way is this same failure, or a more important one
                    raise FileError(f"{self.name}: {problem.strerror or problem}") from problem

    def write(self, text: str) -> None:
        self.put(self._on_a_line(text).encode() + b"\n")
        self.count += 1

    def write_parts(self, parts: Iterable[str]) -> None:
        """Writes a line as its parts arrive. One that breaks off is ended, and does not count. Raises as `write`."""
        from translane.errors import TranslaneError

        begun = after_return = False
        try:
            for part in parts:
                if after_return and not self._keep_breaks:
                    part = part.removeprefix("\n")
                self.put(self._on_a_line(part).encode())
                begun, after_return = True, part.endswith("\r")
        except TranslaneError:
            if begun:
                self.put(b"\n")
            raise
        self.put(b"\n")
        self.count += 1

    def _on_a_line(self, text: str) -> str:
        return text if self._keep_breaks else on_a_line(text)

    def put(self, content: bytes) -> None:
        file = self._open()
        with naming(self.name):
            file.write(content)
            file.flush()  # the reader of a pipe gets each text as soon as it is written

    def _open(self) -> BinaryIO:
        if self._file is None:
            assert self._path is not None
            with naming(self.name):
                self._file = self._path.open("wb")
        return self._file


def check_place(path: Path) -> None:
    """FileError: no file can be written there, which is told before there is something to write."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise FileError(f"{path}: it is a folder")
    if not (_is_special(path) or os.access(target.parent, os.W_OK | os.X_OK) or os.access(target, os.W_OK)):
        raise FileError(f"{path}: no file can be written in its folder")


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file: a new one beside it takes its place when it is whole. Without rights to its folder, in place."""
    target = Path(os.path.realpath(path))
    part = target.with_name(f".{token_hex(8)}.part")  # nobody else's file, and no other command's
    with naming(path):
        if _is_special(path) or not os.access(target.parent, os.W_OK | os.X_OK):
            path.write_bytes(content)
            return
        try:
            with part.open("xb") as file:
                if target.exists():
                    shutil.copymode(target, part)
                file.write(content)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)


def _is_special(path: Path) -> bool:
    """Whether it is a pipe or a device, which is written, and not replaced. A link to a pipe leads to no path."""
    return path.exists() and not path.is_file()


def on_a_line(text: str) -> str:
    """`text` with a space in place of each line break."""
    return text.replace("\r\n", " ").replace("\n", " ").replace("\r", " ")


class Notes:
    """Gathers notes, and shows them when the command ends: each on a line, at most ten, with the number of the rest."""

    def __init__(self) -> None:
        self._notes = dict[str, None]()
        self._more = 0

    def add(self, place: str, treatment: Treatment | None) -> None:
        """Takes what was done with the text at `place`."""
        if treatment is None:
            return
        if treatment.cut_sentences:
            cut = "1 sentence was" if treatment.cut_sentences == 1 else f"{treatment.cut_sentences} sentences were"
            self._add(f"{place}: {cut} too long, and cut in the middle")
        for term in treatment.terms:
            if term.outcome is TermOutcome.UNSPELLABLE:  # so it is in every text
                self._add(f"{_term(term)} was not applied: the model's vocabulary cannot spell the target")
            elif term.outcome in _PROBLEMS:
                self._add(f"{place}: {_term(term)} was not applied: {_PROBLEMS[term.outcome]}")

    def show(self, say: Callable[[str], None], hint: str = "") -> None:
        for note in self._notes:
            say(note)
        if self._more:
            say(f"and {self._more} more such notes{hint}")

    def _add(self, note: str) -> None:
        if note in self._notes:
            return
        if len(self._notes) < _MOST_NOTES:
            self._notes[note] = None
        else:
            self._more += 1


def _term(term: TermReport) -> str:
    where = f" of the glossary {term.glossary}" if term.glossary else ""
    return f"the term {term.source} → {term.target}{where}"
