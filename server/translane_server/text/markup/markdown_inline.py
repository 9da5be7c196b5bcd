"""Markdown within a line: what the parser finds, and where in the line it stands."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from translane_server.text.markup import elements
from translane_server.text.markup.items import Item, Kind

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

_BREAK = re.compile(r"(?:[ \t]*|\\)\n[ \t]*")
_TAG = re.compile(r"<(/?)([A-Za-z][A-Za-z0-9-]*)")
_NOT_TRANSLATED = re.compile(r"""\stranslate\s*=\s*["']?no\b|\sclass\s*=\s*["'][^"']*\bnotranslate\b""", re.IGNORECASE)


@cache
def parser() -> MarkdownIt:
    """Return a parser of CommonMark with tables and strikethrough, which leaves lines to `items_of`."""
    from markdown_it import MarkdownIt  # takes a while, and most servers never see markup

    markdown = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    markdown.core.ruler.enableOnly(["normalize", "block"])
    markdown.inline.ruler2.disable(["fragments_join"])
    for name in ("link", "image"):
        rule = next(each for each in markdown.inline.ruler.__rules__ if each.name == name).fn
        markdown.inline.ruler.at(name, _with_end(rule))
    return markdown


def _with_end(rule: Any) -> Any:
    """Return a rule that notes where each link and image ends, because tokens do not say it."""

    def noting(state: StateInline, silent: bool) -> bool:
        start = state.pos
        found: bool = rule(state, silent)
        if found and not silent:
            # The text of an image is parsed on its own, and is shorter than the line around it.
            state.env["ends"][len(state.src), start] = state.pos
        return found

    return noting


def items_of(line: str, references: dict[str, Any]) -> list[Item] | None:
    """Return the items of a line, with their places in it.

    Args:
        line: the line, without what is around it. It may have line breaks.
        references: the link reference definitions of the document, as the parser has them.

    Returns:
        None if the parser does not say where its tokens stand. Nothing of such a line is translated.
    """
    markdown = parser()
    env: dict[str, Any] = {"references": references, "ends": {}}
    tokens: list[Token] = []
    markdown.inline.parse(line, markdown, env, tokens)
    ends = {start: end for (length, start), end in env["ends"].items() if length == len(line)}
    items = [item for item in _walk(line, tokens, ends) if item.start < item.end]
    if any(after.start != before.end for before, after in pairwise(items)) or (
        items and (items[0].start != 0 or items[-1].end != len(line))
    ):
        return None
    return _without_protected(items)


def _walk(line: str, tokens: Sequence[Token], ends: dict[int, int]) -> Iterator[Item]:
    """Yield the items of tokens. An item that does not start where the last one ended shows that a place is wrong."""
    place = 0
    links: list[int] = []  # where links that are open end
    autolink = False
    for token in tokens:
        start = place
        if autolink:
            autolink = token.type != "link_close"
            continue
        match token.type:
            case "text":
                if not line.startswith(token.content, place):
                    return
                place += len(token.content)
                yield Item(Kind.TEXT, start, place, token.content)
            case "text_special":
                place += len(token.markup)
                yield Item(Kind.TEXT, start, place, token.content)
            case "softbreak" | "hardbreak":
                match = _BREAK.match(line, place)
                place = match.end() if match else len(line) + 1
                yield Item(Kind.TEXT if token.type == "softbreak" else Kind.BREAK, start, place, " ")
            case "code_inline":
                place = _end_of_code(line, place, token.markup)
                yield Item(Kind.SINGLE, start, place, is_word=True)
            case "html_inline":
                place += len(token.content)
                yield _html_item(token.content, start, place)
            case "image":
                place = ends.get(start, len(line) + 1)
                yield Item(Kind.SINGLE, start, place, _alternative_text(token), name="image")
            case "link_open" if token.markup == "autolink":
                autolink = True
                place = line.find(">", place) + 1
                yield Item(Kind.SINGLE, start, place, is_word=True)
            case "link_open":
                links.append(ends.get(start, len(line) + 1))
                place += 1
                yield Item(Kind.OPEN, start, place, name="link")
            case "link_close":
                place = links.pop()
                yield Item(Kind.CLOSE, start, place, name="link")
            case _ if token.markup:  # emphasis
                place += len(token.markup)
                kind = Kind.OPEN if token.nesting > 0 else Kind.CLOSE
                yield Item(kind, start, place, name=token.markup)
            case _:
                return


def _end_of_code(line: str, start: int, fence: str) -> int:
    place = start + len(fence)
    while (place := line.find(fence, place)) >= 0:
        end = place
        while line.startswith("`", end):
            end += 1
        if end - place == len(fence):
            return end
        place = end
    return len(line) + 1


def _alternative_text(image: Token) -> str:
    """Return the text of an image if it is nothing but text."""
    children = image.children or ()
    if all(child.type in ("text", "text_special") for child in children):
        return "".join(child.content for child in children)
    return ""


def _html_item(source: str, start: int, end: int) -> Item:
    tag = _TAG.match(source)
    name = tag[2].lower() if tag else ""
    if name == "br":
        return Item(Kind.BREAK, start, end)
    if not tag or name in elements.VOID or source.endswith("/>"):
        return Item(Kind.SINGLE, start, end)
    if tag[1]:
        return Item(Kind.CLOSE, start, end, name=f"<{name}>")
    is_protected = name in elements.PROTECTED or _NOT_TRANSLATED.search(source) is not None
    return Item(Kind.OPEN, start, end, name=f"<{name}>", is_word=is_protected)


def _without_protected(items: Sequence[Item]) -> list[Item]:
    """Make a single item of each HTML element that is not translated."""
    last = {item.name: i for i, item in enumerate(items) if item.kind is Kind.CLOSE}
    found: list[Item] = []
    i = 0
    while i < len(items):
        item = items[i]
        end = i
        if item.kind is Kind.OPEN and item.is_word:
            if last.get(item.name, -1) > i:
                while items[end].kind is not Kind.CLOSE or items[end].name != item.name:
                    end += 1
                item = Item(Kind.SINGLE, item.start, items[end].end, is_word=True)
            else:
                item = Item(Kind.BREAK, item.start, item.end)
        found.append(item)
        i = end + 1
    return found
