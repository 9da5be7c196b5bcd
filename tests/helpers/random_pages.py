"""Random HTML, and what a parser finds in it."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import lxml.html
import turbohtml

INLINE = ["b", "i", "em", "strong", "span", "u", "sub", "my-tag", "abbr"]
PROTECTED = ["code", "kbd", "pre", "script", "style", "textarea", "svg", "math", "var"]
RAW = {"script", "style"}
NOT_TRANSLATED = {*PROTECTED, "samp", "rt", "rp"}
WORDS = [
    "hello", "a cat", "&amp;", "&lt;b&gt;", "caf&eacute;", " ", "\n  ", "a & b", "你好", "&#x1F600;", "don’t", ".",
    ", ", '"q"', "1 > 0",
]  # fmt: skip
ATTRIBUTES = [
    ' title="a > b"', " title='it\"s'", " class=x", ' alt="one\ntwo"', " translate=no", " translate=yes", " disabled",
    ' class="a notranslate"', ' href="?a=1&amp;b"', " title=word", ' data-x="<b>"', " translate", ' TITLE = "Up"',
]  # fmt: skip
SOUP = ["</p>", "</b>", "</br>", "<", "</", "<b ", "</ >", "x<y", "<td>", "<li>", "<a>", "<form>", "<table>"]


def random_page(generator: random.Random) -> str:
    """Return a well-formed part of a page."""
    return "".join(_block(generator, 0) for _ in range(generator.randint(1, 4)))


def random_soup(generator: random.Random) -> str:
    """Return a part of a page whose tags are at wrong places, missing or cut."""
    page = random_page(generator)
    for _ in range(generator.randint(1, 5)):
        tags = list(re.finditer(r"<[^>]*>", page))
        place = generator.randint(0, len(page))
        match generator.randrange(4):
            case 0 if tags:
                tag = generator.choice(tags)
                page = page[: tag.start()] + page[tag.end() :]
            case 1 if tags:
                page = page[:place] + generator.choice(tags)[0] + page[place:]
            case 2:
                page = page[:place] + page[generator.randint(0, len(page)) :]
            case _:
                page = page[:place] + generator.choice(SOUP) + page[place:]
    return page


def _attributes(generator: random.Random) -> str:
    return "".join(generator.sample(ATTRIBUTES, generator.choice([0, 0, 0, 1, 2])))


def _block(generator: random.Random, depth: int) -> str:
    attributes = _attributes(generator)
    match generator.randrange(8):
        case 0 | 1 if depth < 4:
            name = generator.choice(["div", "section", "blockquote"])
            return f"<{name}{attributes}>{''.join(_block(generator, depth + 1) for _ in range(3))}</{name}>"
        case 2:
            items = "".join(f"<li{_attributes(generator)}>{_line(generator, 0)}</li>" for _ in range(3))
            return f"<ul{attributes}>\n{items}</ul>"
        case 3:
            return f"<table{attributes}><tbody><tr><td>{_line(generator, 0)}</td></tr></tbody></table>"
        case 4:
            return f"<p{attributes}>{_line(generator, 0)}</p>"
        case 5:
            return f"<h1{attributes}>{_line(generator, 0)}</h1>\n"
        case _:
            return _line(generator, 0)


def _line(generator: random.Random, depth: int) -> str:
    return "".join(_in_line(generator, depth) for _ in range(generator.randint(0, 5)))


def _in_line(generator: random.Random, depth: int) -> str:
    attributes = _attributes(generator)
    match generator.randrange(10):
        case 0 | 1 | 2 if depth < 4:
            name = generator.choice(INLINE)
            return f"<{name}{attributes}>{_line(generator, depth + 1)}</{name}>"
        case 3:
            name = generator.choice([name for name in PROTECTED if name != "pre"])
            inner = {"svg": "<path/>", "math": "<mi>x</mi>", "code": "<b>c</b> <i>d</i>"}.get(name, "x + y")
            return f"<{name}{attributes}>{inner}</{name}>"
        case 4:
            name = generator.choice(["br", "img", "input"])
            return f"<{name}{attributes}{generator.choice(['', ' /'])}>"
        case 5:
            return generator.choice(["<!-- c > d -->", "<!---->", "<![CDATA[x]]>", "<?php x ?>"])
        case _:
            return "".join(generator.choice(WORDS) for _ in range(generator.randint(1, 4)))


@dataclass(frozen=True)
class Element:
    name: str
    attributes: dict[str, str]
    children: list[Element | str]


def spec_tree(page: str) -> Element:
    """Return the tree of a part of a page as browsers make it."""

    def convert(node: turbohtml.Element) -> Element:
        children: list[Element | str] = []
        for child in node.children:
            if isinstance(child, turbohtml.Element):
                children.append(convert(child))
            elif isinstance(child, turbohtml.Text):
                children.append(child.data)
        values = {key: value if isinstance(value, str) else " ".join(value or []) for key, value in node.attrs.items()}
        return Element(node.tag, values, children)

    root = turbohtml.parse(page).root
    assert isinstance(root, turbohtml.Element)
    return convert(root)


def libxml_tree(page: str) -> Element:
    """Return the tree of a part of a page as libxml2 makes it."""

    def convert(node: lxml.html.HtmlElement) -> Element:
        children: list[Element | str] = [node.text or ""]
        for child in node:
            if isinstance(child.tag, str):
                children.append(convert(child))
            children.append(child.tail or "")
        return Element(node.tag, dict(node.attrib), children)

    return convert(lxml.html.document_fromstring(f"<html><body>{page}"))


def kept(tree: Callable[[str], Element], page: str, *, protected: bool) -> Counter[object]:
    """Return what no translation changes: each element with those around it and its attributes, and kept text.

    Args:
        tree: parses a page.
        page: a page.
        protected: whether to list text that is not translated, and not only what is in scripts.
    """
    found: Counter[object] = Counter()

    def walk(element: Element, around: tuple[str, ...], is_kept: bool) -> None:
        attributes = tuple(
            (key, "" if key in ("alt", "title") else value) for key, value in sorted(element.attributes.items())
        )
        found[around, element.name, attributes] += 1
        choice = element.attributes.get("translate")
        if element.name in RAW:
            is_kept = True
        elif choice is not None:
            is_kept = choice == "no"
        elif "notranslate" in element.attributes.get("class", "") or element.name in NOT_TRANSLATED:
            is_kept = True
        for child in element.children:
            if isinstance(child, Element):
                walk(child, (*around, element.name), is_kept)
            elif child.strip() and is_kept and (protected or element.name in RAW):
                found[around, element.name, "text", child] += 1

    walk(tree(page), (), is_kept=False)
    return found


def text_of(element: Element) -> str:
    """Return all text, in order, without white space."""
    texts = [text_of(child) if isinstance(child, Element) else child for child in element.children]
    return re.sub(r"[\s\u00a0]+", "", "".join(texts))
