"""Cuts a long HTML page between blocks, so that each piece fits into a request and can be resumed.

The server translates a page block by block, so pieces have the translations that the page has. A page is cut between
the end of a block and the start of the next one, and nowhere within an element whose text may be left as it is. A page
stays whole if it has markup that cannot be told apart from text with certainty, or if such an element has no end
(https://html.spec.whatwg.org/multipage/parsing.html#tokenization).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

LEAST = 16 << 10
"""Characters of a piece at least; a shorter page is not cut."""

_SPACE = r"[ \t\r\n\f]"
_VALUE = r"""(?:"[^"]*+"|'[^']*+'|[^ \t\r\n\f"'=<>`]++)"""
_MARKUP = re.compile(
    r"<!--(?!-?>)(?P<comment>[^-]*+(?:-(?!-!?>)[^-]*+)*+)-->"
    r"|<(?![!?][-\[])[!?][^>]*+>"  # a declaration
    rf"|<(?P<end>/?)(?P<name>[A-Za-z][A-Za-z0-9-]*+)"
    rf"(?P<attributes>(?:{_SPACE}++[^ \t\r\n\f\"'<>/=]++(?:{_SPACE}*+={_SPACE}*+{_VALUE})?+)*+){_SPACE}*+(?P<empty>/?)>"
    r"|(?P<unclear><[A-Za-z/!?])"
)
_CHOICE = re.compile("translate", re.IGNORECASE)  # the attribute, or the class notranslate


def _names(names: str) -> frozenset[str]:
    return frozenset(names.split())


_MOST_INNER = 512
"""Elements within each other; the server takes no more."""

_BLOCKS = _names(
    "address article aside blockquote div dl figure footer form h1 h2 h3 h4 h5 h6 header main nav ol p pre section"
    " table ul"
)
_RAW = _names("script style textarea title xmp iframe noembed noframes plaintext")
_FOREIGN = _names("svg math")  # elements of these may end where they start
_VOID = _names("area base br col embed hr img input link meta param source track wbr")
_CLOSED = _names("code kbd listing math noscript object pre rp rt rtc samp select svg template var")
"""Elements within which no page is cut, because their text may stay as it is or follow other rules."""


def sections(text: str) -> Iterator[str]:
    """Pieces of the page, one after the other: together they are the page."""
    begun = 0
    for start in _starts(text):
        if start - begun >= LEAST and len(text) - start >= LEAST:
            yield text[begun:start]
            begun = start
    yield text[begun:]


def _starts(text: str) -> list[int]:
    """Where blocks begin that a piece may begin with; none where that is not certain."""
    starts = list[int]()
    place, block_end = 0, -1
    inner: list[str] = []  # the elements that are open from the outermost one on that is not cut
    while match := _MARKUP.search(text, place):
        place = match.end()
        if match["unclear"] or "<!--" in (match["comment"] or ""):
            return []
        name = (match["name"] or "").lower()
        if not name:
            continue
        if name in _RAW and not match["end"]:
            end = re.compile(rf"</{name}{_SPACE}*+>", re.IGNORECASE).search(text, place)
            if end is None or "<!--" in text[place : end.start()]:
                return []
            place = end.end()
        elif match["end"]:
            if inner and inner.pop() != name:
                return []
        else:
            if not inner and name in _BLOCKS and block_end >= 0 and not text[block_end : match.start()].strip():
                starts.append(match.start())
            is_drawn = bool(match["empty"]) and not _FOREIGN.isdisjoint([name, *inner])
            if not (name in _VOID or is_drawn) and (inner or name in _CLOSED or _CHOICE.search(match["attributes"])):
                inner.append(name)
                if len(inner) > _MOST_INNER:
                    return []
        block_end = match.end() if match["end"] and name in _BLOCKS and not inner else -1
    return [] if inner else starts
