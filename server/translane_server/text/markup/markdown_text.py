"""Inline Markdown: read as items, and written."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from translane_server.text.markup import elements
from translane_server.text.markup.document import Item, Kind, Part

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

_BREAK = re.compile(r"(?:[ \t]*|\\)\n[ \t]*")
_TAG = re.compile(r"<(/?)([A-Za-z][A-Za-z0-9-]*)")
_NOTE = re.compile(r"\[\^[^\[\]\s]+\]")
# What starts a footnote, with an address behind it, or a callout. A line is cut there.
_NOTE_START = re.compile(rf"{_NOTE.pattern}:(?:[ \t]*\w+://\S+)?|\A\[!\w+\]")
_NOT_TRANSLATED = re.compile(r"""\stranslate\s*=\s*["']?no\b|\sclass\s*=\s*["'][^"']*\bnotranslate\b""", re.IGNORECASE)


@cache
def parser() -> MarkdownIt:
    """Return a parser of CommonMark with tables, strikethrough and notes, which leaves lines to `items_of`."""
    from markdown_it import MarkdownIt  # takes a while, and most servers never see markup

    markdown = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    markdown.core.ruler.enableOnly(["normalize", "block"])
    markdown.inline.ruler2.disable(["fragments_join"])
    for name in ("link", "image"):
        rule = next(each for each in markdown.inline.ruler.__rules__ if each.name == name).fn
        markdown.inline.ruler.at(name, _with_end(rule))
    markdown.inline.ruler.after("link", "note", _note)
    markdown.block.ruler.at("reference", _reference, {"alt": ["paragraph"]})
    return markdown


def _reference(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Read a link reference definition, and leave footnotes, which look like one, to be paragraphs.

    A paragraph asks silently whether it ends: it does if the line above is a footnote that looks like a definition.
    """
    from markdown_it.rules_block import reference

    def is_footnote(line: int) -> bool:
        return state.src.startswith("[^", state.bMarks[line] + state.tShift[line])

    if silent and not (is_footnote(start - 1) and reference(state, start - 1, end, silent)):
        return False
    return not is_footnote(start) and reference(state, start, end, silent)


def _note(state: StateInline, silent: bool) -> bool:
    """Read what refers to a footnote, or starts a note at the start of a line."""
    # The parser looks ahead for the end of a link, and takes any brackets that are one token for a link within it.
    if silent:
        return False
    starts_line = not state.pending and (not state.tokens or state.tokens[-1].type in ("softbreak", "hardbreak"))
    start = _NOTE_START.match(state.src, state.pos, state.posMax) if starts_line else None
    found = start or _NOTE.match(state.src, state.pos, state.posMax)
    if found:
        state.pos = found.end()
        state.push("note_start" if start else "note", "", 0).content = found[0]
    return found is not None


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
    """Return the items of a line, with their places in it; the line may have line breaks, and nothing around it.

    The link reference definitions are those of the document, as the parser has them. Returns None if the parser does
    not say where its tokens stand. Nothing of such a line is translated.
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
            case "note" | "note_start":
                place += len(token.content)
                yield Item(Kind.SINGLE if token.type == "note" else Kind.BREAK, start, place)
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
    match = re.compile(rf"(?<!`){fence}(?!`)").search(line, start + len(fence))
    return match.end() if match else len(line) + 1


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


_SPECIAL = re.compile(r"[\\`*_\[\]<&~!]")
_BACKQUOTES = re.compile("`+")
_FENCE = 3  # backquotes at the start of a line that begin a block of code
_SPACE = re.compile(r"\s*[\r\n\t]\s*")
_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{0,40});")
_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
# What makes something else of a line than a paragraph. The character after the match is escaped.
_BLOCK_START = re.compile(
    r"(?=[-+](?:[\s-]|$)|=(?:[=\s]|$)|#{1,6}(?:\s|$)|>|\|[-:\s|]|:-|~~~)|[0-9]{1,9}(?=[.)](?:\s|$))"
    rf"|{_NOTE.pattern}(?=:)"
)
# Tags that do so at the start of a line: of HTML, and "~~" twice.
_TAG_BLOCK_START = re.compile(r"<(?:[!?]|/?[A-Za-z][A-Za-z0-9-]*(?=[\s/>]|$))|~~~")
_HEADING_END = re.compile(r"(?:(?<=\s)|^)(?=#+\s*$)")
_EMPHASIS = {"*": "em", "_": "em", "**": "strong", "__": "strong", "~~": "del"}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is around a block."""

    # whether a line starts with it, so that its first characters may begin another kind of block
    starts_line: bool = False
    in_heading: bool = False  # whether it is in a heading. A heading may end with "#", or have "---" below
    in_cell: bool = False  # whether it is in a table's cell
    bar: str = "\\|"  # how "|" is written. A line with one is the head of a table if "---" follows
    # lengths of runs of backquotes that the block has, and that are in its line once
    backquotes: frozenset[int] = frozenset()


def write_line(parts: Sequence[Part], references: dict[str, Any], around: Surroundings) -> str:
    """Return what stands in the source for a translation.

    The link reference definitions are those of the document, as the parser has them.
    """
    parts = _apart([part if part.is_tag else replace(part, text=_SPACE.sub(" ", part.text)) for part in parts])
    written = _written(parts, around)
    if not _says(written, parts, references, in_cell=around.in_cell):
        as_html = [
            replace(part, text=emphasis_as_html(part.text, closes=part.is_closing) or part.text)
            if part.is_tag
            else part
            for part in parts
        ]
        written = _written(as_html, around)
    written = written.strip()
    if around.starts_line:
        match = _BLOCK_START.match(written)
        if match:
            written = f"{written[: match.end()]}\\{written[match.end() :]}"
        elif parts and parts[0].is_tag and _TAG_BLOCK_START.match(written):
            written = f"&#8203;{written}"
    if around.in_heading:
        written = _HEADING_END.sub(lambda _: "\\", written, count=1)
    return written


def lone_backquotes(text: str) -> frozenset[int]:
    """Return the lengths of runs of backquotes that are in `text` once, so that they start no code."""
    counts = Counter(map(len, _BACKQUOTES.findall(text)))
    return frozenset(length for length, count in counts.items() if count == 1 and length < _FENCE)


def emphasis_as_html(sign: str, *, closes: bool) -> str:
    """Return a tag of HTML for one of emphasis; "" for all else.

    Emphasis starts and ends at some places only: it depends on the characters beside it. HTML does not.
    """
    return f"<{'/' if closes else ''}{_EMPHASIS[sign]}>" if sign in _EMPHASIS else ""


def write_alternative(text: str, around: Surroundings) -> str:
    """Return what stands in the source for the text of an image; `around` is what is around the image's block."""
    return _written([Part("[", is_tag=True), Part(_SPACE.sub(" ", text)), Part("]", is_tag=True)], around)[1:-1]


def _apart(parts: Sequence[Part]) -> list[Part]:
    """Put spaces between pieces of code side by side, whose backquotes would be taken for one run."""
    found: list[Part] = []
    for part in parts:
        if found and found[-1].is_tag and part.is_tag and found[-1].text[-1:] == part.text[:1] == "`":
            found.append(Part(" "))
        found.append(part)
    return found


def _written(parts: Sequence[Part], around: Surroundings) -> str:
    runs = lone_backquotes("".join(part.text for part in parts))
    alone = around.backquotes & runs
    written = []
    for i, part in enumerate(parts):
        if part.is_tag:
            written.append(part.text)
            continue
        before = parts[i - 1].text[-1:] if i else ""
        after = parts[i + 1].text[:1] if i + 1 < len(parts) else ""
        if part.text.startswith("(") and i and _NOTE.fullmatch(parts[i - 1].text):
            written.append("\\")  # or the note is the text of a link
        written.append(_escaped(part.text, before, after, alone).replace("|", around.bar))
    return "".join(written)


def _escaped(text: str, before: str, after: str, alone: Collection[int]) -> str:
    """Return text with escapes, which stands between two characters; "" is the end of a line.

    Runs of backquotes whose lengths are in `alone` start no code.
    """
    runs = {place: match for match in _BACKQUOTES.finditer(text) for place in range(*match.span())}
    whole = f"{before}{text}{after}"

    def escape(match: re.Match[str]) -> str:
        place = match.start() + len(before)
        last, following = whole[place - 1 : place], whole[place + 1 : place + 2]
        match match[0]:
            case "\\":
                needed = following in _PUNCTUATION or not following
            case "*":
                needed = not (last.isspace() and following.isspace())
            case "_":
                needed = not (last.isalnum() and following.isalnum())
            case "<":
                needed = following.isalpha() or following in ("/", "!", "?") or not following
            case "&":
                needed = _ENTITY.match(whole, place) is not None
            case "`":
                first, end = runs[match.start()].span()
                is_apart = (first or before != "`") and (end < len(text) or after != "`")
                needed = not (is_apart and end - first in alone)
            case "~":
                needed = "~" in (last, following)
            case "!":
                needed = match.end() == len(text) and after == "["
            case _:
                needed = True
        return f"\\{match[0]}" if needed else match[0]

    return _SPECIAL.sub(escape, text)


def _says(written: str, parts: Sequence[Part], references: dict[str, Any], *, in_cell: bool) -> bool:
    """Whether a parser finds the parts in what is written."""
    if not any(part.is_tag for part in parts):
        return True
    if in_cell:
        written = written.replace("\\|", "|")
    items = items_of(written, references)
    if items is None:
        return False
    found: list[Part] = []
    for item in items:
        is_tag = item.kind is not Kind.TEXT
        text = written[item.start : item.end] if is_tag else item.text
        if found and not is_tag and not found[-1].is_tag:
            found[-1] = Part(found[-1].text + text)
        else:
            found.append(Part(text, is_tag, item.kind is Kind.CLOSE))
    wanted = [replace(part, text=part.text.replace("\\|", "|")) if part.is_tag and in_cell else part for part in parts]
    return found == wanted
