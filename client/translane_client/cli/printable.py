"""Makes what a server says fit for a terminal, where control characters move the cursor or fake a line."""

from __future__ import annotations

_MOST_CHARACTERS = 4000


def printable(text: str) -> str:
    r"""`text` on one line: other characters than printable ones are escaped, as in "\x1b"; a long text is cut off."""
    if len(text) > _MOST_CHARACTERS:
        text = text[:_MOST_CHARACTERS] + "…"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
