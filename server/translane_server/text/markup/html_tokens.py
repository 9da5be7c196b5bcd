"""Tags of HTML as the parser finds them, with their places in the source."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from translane_server.text.markup import elements

if TYPE_CHECKING:
    import turbohtml

_SIGN = ">"
_ATTRIBUTE = re.compile(
    r"""[ \t\r\n\f/]*+(?P<name>[^ \t\r\n\f/>][^ \t\r\n\f/>=]*+)"""
    r"""(?:[ \t\r\n\f]*+=[ \t\r\n\f]*+(?P<value>"[^"]*+"|'[^']*+'|[^ \t\r\n\f>"'][^ \t\r\n\f>]*+))?+"""
)


class PlacedToken(NamedTuple):
    """A token of a text.

    Attributes:
        token: the token; a text has its words in `text`.
        text: what a token of text says.
        start: where the token starts in the text that it is of [characters].
        end: where it ends.
    """

    token: turbohtml.Token
    text: str
    start: int
    end: int


def tokens(source: str) -> tuple[list[PlacedToken], int]:
    """Return the tokens of a text, and where the tag begins that the text ends within: at its end for no such tag.

    The tokenizer says nothing of such a tag. So the text is tokenized with a sign behind it that would finish the tag.
    If the sign becomes text, there is no such tag, and these are the tokens of the text.
    """
    import turbohtml  # takes a while, and most servers never see markup

    found = list(turbohtml.tokenize(source + _SIGN))
    if found and found[-1].type is turbohtml.TokenType.TEXT and (found[-1].data or "").endswith(_SIGN):
        return _placed(source + _SIGN, found, len(source)), len(source)
    end = _unfinished_tag(source)
    return finished_tokens(source[:end]), end


def finished_tokens(source: str) -> list[PlacedToken]:
    """Return the tokens of a text that ends within no tag."""
    import turbohtml

    return _placed(source, list(turbohtml.tokenize(source)), len(source))


def _placed(source: str, found: Sequence[turbohtml.Token], length: int) -> list[PlacedToken]:
    """Return tokens with their places; of the last one, only what is within the first `length` characters."""
    starts = _places(source, found)
    placed = [
        PlacedToken(token, token.data or "", start, end)
        for token, (start, end) in zip(found, pairwise([*starts, length]), strict=True)
    ]
    beyond = len(source) - length
    if beyond:
        placed[-1] = placed[-1]._replace(text=placed[-1].text[:-beyond])
    return placed


def _unfinished_tag(source: str) -> int:
    """Return where the tag begins that `source` ends within; the length of `source` if it ends outside of tags."""
    import turbohtml

    known = list(turbohtml.tokenize(source))
    for finish in (">", '">', "'>"):
        found = list(turbohtml.tokenize(source + finish))
        if not found:
            continue
        last = found[-1]
        if last.type is turbohtml.TokenType.TEXT:
            if (last.data or "").endswith(finish):
                break  # it is text after the last tag
            continue
        place = _places(source + finish, [last])[0]
        return place if len(found) > len(known) and place < len(source) else len(source)
    return len(source)


def _places(source: str, found: Sequence[turbohtml.Token]) -> list[int]:
    """Return where each token starts."""
    lines = [0, *(match.end() for match in re.finditer(r"\r\n?|\n", source))]
    return [lines[token.line - 1] + token.col for token in found]


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
