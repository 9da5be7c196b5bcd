"""Callers' own patterns of what is not translated, as regular expressions of RE2.

RE2 takes time in proportion to the length of the text, whatever the pattern: https://github.com/google/re2/wiki/Syntax.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import re2

from translane_server.core.budget import UNLIMITED, Budget
from translane_server.text.kept import Kept, without_overlaps

# The patterns of a request together have at most this many of RE2's instructions. A hostile text takes each of its
# characters through all of them, which takes some microseconds.
_MOST_INSTRUCTIONS = 1000
_MEMORY = 1 << 20  # bytes that RE2 may take for a pattern

_LINE = re.compile(r"[^\r\n]+")


class PreservePatternError(ValueError):
    """A pattern cannot be used. `number` is its place in the list."""

    def __init__(self, number: int, message: str) -> None:
        self.number = number
        super().__init__(message)


class PreservePatterns:
    """What a request preserves besides what rules find.

    A pattern matches within a line. Of matches that start together the longest one counts. Empty matches do not count.

    Args:
        patterns: regular expressions.

    Raises:
        PreservePatternError: a pattern is no regular expression of RE2, matches an empty text, or is too large.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = []
        instructions = 0
        for number, pattern in enumerate(patterns):
            try:
                compiled = re2.compile(pattern, _options())
            except re2.error as error:
                raise PreservePatternError(number, f"is no regular expression of RE2: {_reason(error)}") from None
            if compiled.search("") is not None:
                raise PreservePatternError(number, "matches an empty text")
            instructions += compiled.programsize
            if instructions > _MOST_INSTRUCTIONS:
                message = f"is too large: the patterns have more than {_MOST_INSTRUCTIONS} instructions together"
                raise PreservePatternError(number, message)
            self._patterns.append(compiled)

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def find(self, text: str, budget: Budget = UNLIMITED) -> list[Kept]:
        """Return what the patterns match, from left to right; of matches that overlap, the one that starts first.

        Args:
            text: any text.
            budget: is checked after each match.
        """
        found = []
        for line in _LINE.finditer(text):
            start = line.start()
            for pattern in self._patterns:
                budget.check()
                for match in pattern.finditer(line.group()):
                    budget.check()
                    if match.end() > match.start():
                        found.append(Kept(start + match.start(), start + match.end()))
        return without_overlaps(found)


def _options() -> Any:
    options = re2.Options()
    options.log_errors = False
    options.longest_match = True
    options.max_mem = _MEMORY
    return options


def _reason(error: Exception) -> str:
    """Return what RE2 says is wrong. It says so in bytes, which quote the pattern."""
    (message,) = error.args
    return message.decode(errors="replace") if isinstance(message, bytes) else str(message)
