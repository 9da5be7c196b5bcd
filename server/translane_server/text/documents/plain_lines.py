"""Plain text: each line is a text. Blank lines, lines without a letter or a digit, and indents stay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from translane_server.core.budget import Budget
from translane_server.text.documents.document import Place, is_worth_translating, on_a_line, trimmed
from translane_server.text.documents.encoding import TextFile


class _Line(Place):
    __slots__ = ()

    def write(self, translations: Sequence[str]) -> str:
        return on_a_line(translations[0])


def read_lines(file: TextFile, _: bool, budget: Budget) -> Iterator[Place]:
    """Yield the lines that are not blank, without the white space around them. See `ReadPlaces`."""
    for line in file.lines():
        budget.check()
        before, core, _after = trimmed(file.text[line.start : line.end])
        if not core:
            continue
        start = line.start + len(before)
        yield _Line(start, start + len(core), ((start, core),) if is_worth_translating(core) else ())
