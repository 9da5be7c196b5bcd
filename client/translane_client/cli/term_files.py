"""Files of terms: each line is a source phrase and the target phrase that its translation has to hold."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from translane.options import Term
from translane_client.cli.text_files import FileError, opened, texts_of

_FLAGS = {"ignore-case": "ignore_case", "inflected": "inflected"}
_MOST_COLUMNS = 3


@dataclass(frozen=True, slots=True)
class TermFile:
    """The terms of a file, and the line of each term, counted from 1."""

    path: Path
    terms: list[Term]
    lines: list[int]

    def place(self, index: int) -> str:
        """The file and the line of a term; the file alone where there is no such term."""
        return f"{self.path}, line {self.lines[index]}" if index < len(self.lines) else str(self.path)


def read_terms(path: Path) -> TermFile:
    """The terms of a UTF-8 file.

    A line holds a source phrase, a tab and a target phrase, and maybe another tab and flags: ignore-case, inflected, or
    both with a comma between. Blank lines, lines that begin with #, and spaces around a phrase are left out.

    Raises:
        FileError: the file cannot be read, or a line holds no term; the message names the file and the line.
    """
    terms, lines = [], []
    with opened(path) as file:
        for number, (text, _) in enumerate(texts_of(file, str(path)), start=1):
            if text.startswith("#") or not text.strip():
                continue
            try:
                terms.append(_term(text))
            except ValueError as error:
                raise FileError(f"{path}, line {number}: {error}") from None
            lines.append(number)
    return TermFile(path, terms, lines)


def _term(text: str) -> Term:
    """The term of a line. ValueError: the line holds no term."""
    columns = [column.strip() for column in text.split("\t")]
    if not 1 < len(columns) <= _MOST_COLUMNS:
        tabs = "no tab" if len(columns) == 1 else f"{len(columns) - 1} tabs"
        raise ValueError(f"{tabs}, where one is needed between source and target, and one before flags")
    source, target, *others = columns
    if not source or not target:
        raise ValueError(f"the {'target' if source else 'source'} is empty")
    flags = [flag.strip() for flag in "".join(others).split(",") if flag.strip()]
    for flag in flags:
        if flag not in _FLAGS:
            raise ValueError(f"{flag!r:.60} is not a flag; there is {' and '.join(_FLAGS)}")
    return Term(source, target, **{_FLAGS[flag]: True for flag in flags})
