"""Tags of HTML as the parser finds them, with their places in the source."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from translane_server.text.markup import elements

if TYPE_CHECKING:
    import turbohtml

_ATTRIBUTE = re.compile(
    r"""[ \t\r\n\f/]*+(?P<name>[^ \t\r\n\f/>][^ \t\r\n\f/>=]*+)"""
    r"""(?:[ \t\r\n\f]*+=[ \t\r\n\f]*+(?P<value>"[^"]*+"|'[^']*+'|[^ \t\r\n\f>"'][^ \t\r\n\f>]*+))?+"""
)


def tokens(source: str) -> Iterator[tuple[turbohtml.Token, int, int]]:
    """Yield each token of a text, with its start and its end in the text [characters]."""
    import turbohtml  # takes a while, and most servers never see markup

    lines = [0, *(match.end() for match in re.finditer(r"\r\n?|\n", source))]
    found = list(turbohtml.tokenize(source))
    starts = [lines[token.line - 1] + token.col for token in found]
    for token, (start, end) in zip(found, pairwise([*starts, len(source)]), strict=True):
        yield token, start, end


def translates(name: str, token: turbohtml.Token, *, inherited: bool) -> bool:
    """Whether an element's text is translated."""
    if name in elements.RAW:
        return False
    attributes = dict(token.attrs or ())
    choice = attributes.get("translate")
    if choice is not None and choice.lower() in ("", "yes", "no"):
        return choice.lower() != "no"
    if "notranslate" in (attributes.get("class") or "").split():
        return False
    return inherited and name not in elements.PROTECTED


def attribute_values(
    token: turbohtml.Token, names: Collection[str], source: str, start: int, end: int
) -> Iterator[tuple[str, int, int]]:
    """Yield the values of attributes of a start tag, with their places in the source, quotes included.

    Args:
        token: the tag.
        names: the attributes.
        source: the text that the tag is of.
        start: where the tag starts in it.
        end: where the tag ends.
    """
    values = {key: value for key, value in reversed(token.attrs or ()) if key in names and value}
    for match in _ATTRIBUTE.finditer(source, start + 1 + len(token.tag or ""), end - 1) if values else ():
        value = values.pop(match["name"].lower(), "")
        if value and match["value"]:
            yield value, *match.span("value")
