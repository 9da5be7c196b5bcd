"""What is wrong with a document."""

from __future__ import annotations


class DocumentError(ValueError):
    """A document cannot be read or written. The message has no text of the document.

    Attributes:
        line: where, the first line being 1; None if the fault is of the whole document.
    """

    def __init__(self, problem: str, line: int | None = None) -> None:
        super().__init__(problem, line)
        self.line = line

    def __str__(self) -> str:
        problem = self.args[0]
        return problem if self.line is None else f"line {self.line}: {problem}"
