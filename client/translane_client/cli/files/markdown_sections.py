"""Cuts a long Markdown document before headings, so that each piece fits into a request and can be resumed.

A heading at the beginning of a line ends every list and quotation (https://spec.commonmark.org/0.31.2/#atx-headings).
A document stays whole where a piece could depend on another one: with references of links, and with fences or HTML that
cannot be told apart from text line by line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

LEAST = 16 << 10
"""Characters of a piece at least; a shorter document is not cut."""

_HEADING = re.compile(r"#{1,6}(?:[ \t]|\Z)")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_UNCLEAR = re.compile(
    r".*(?:`{3}|~{3})"  # a fence in a list or a quotation
    r"|[ \t>*+.)\d-]*\[[^\]]+\]:"  # the address of a link
    r"| {0,3}<(?:[!?]|pre|script|style|textarea)",  # HTML that goes on over blank lines
    re.IGNORECASE,
)
"""Lines that make it uncertain where a document may be cut."""


def sections(text: str) -> Iterator[str]:
    """Pieces of the document, one after the other: together they are the document."""
    starts = _starts(text)
    begun = 0
    for start in starts:
        if start - begun >= LEAST and len(text) - start >= LEAST:
            yield text[begun:start]
            begun = start
    yield text[begun:]


def _starts(text: str) -> list[int]:
    """Where the headings begin that a piece may begin with; none where that is not certain."""
    starts, fence, blank = list[int](), "", False
    for line in re.finditer(r"([^\r\n]*)(?:\r\n|\r|\n|\Z)", text):
        content = line[1]
        found = _FENCE.match(content)
        if fence:
            closing = found and found[1].startswith(fence) and not content.strip(f" \t{fence[0]}")
            fence = "" if closing else fence
        elif found and (found[1][0] == "~" or "`" not in content[found.end() :]):
            fence = found[1]
        elif line.start() == 0 and content.rstrip() in ("---", "+++"):
            return []  # what begins so may be data about the document
        elif _UNCLEAR.match(content):
            return []
        elif blank and _HEADING.match(content):
            starts.append(line.start())
        blank = not fence and not content.strip()
    return [] if fence else starts
