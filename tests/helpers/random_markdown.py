"""Random Markdown, and what a parser finds in it."""

import random
import re
from collections import Counter

from markdown_it import MarkdownIt

WORDS = [
    "cat", "Hello", "a_b", "x*y", "&amp;", "&copy;", "\\*", "1 < 2", "R&D", "你好", "don’t", "#tag", "C#", "5.", "—",
    '"q"', "[1]", "[^1]", "a [^1]: b", "!", "(x)", "a~b", "$5", "-", "+",
]  # fmt: skip
CODE = ["`a*b`", "``x`y``", "` `", "`<b>`"]
LINK_ENDS = ["](http://u.v/a_b*c)", '](<a b> "ti*tle")', "][foo]", "]", "][]"]
IMAGES = ["[foo]", "[foo][]", "![alt *x* y](i.png)", '![an image](i.png "t")', "![foo]", "![pic][foo]"]
HTML = [
    "<b>bold *x*</b>", "<kbd>F1</kbd>", "<!-- c -->", "<br>", '<span translate="no">Brand</span>',
    '<img src="x" alt="y">',
]  # fmt: skip
RENDERER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
_TAG = re.compile(r"<!--.*?-->|</?[a-zA-Z][^>]*>")


def random_document(generator: random.Random) -> str:
    """Return a document of blocks within each other, with all that stands in a line."""
    document = _blocks(generator, 0, generator.randint(1, 4))
    if generator.random() < 0.5:
        document += '\n\n[foo]: http://foo "t"\n'
    if generator.random() < 0.1:
        document = document.replace("\n", "\r\n")
    return document


def _blocks(generator: random.Random, depth: int, number: int) -> str:
    return "\n\n".join(_block(generator, depth) for _ in range(number))


def _block(generator: random.Random, depth: int) -> str:
    line = _line(generator, 0)
    match generator.randrange(10):
        case 0:
            return f"{'#' * generator.randint(1, 4)} {_flat(line)}{generator.choice(['', ' #'])}"
        case 1:
            return f"{_flat(line)}\n{generator.choice(['===', '---'])}"
        case 2:
            return generator.choice(["```\ncode *x*\n```", "    indented *code*", "---", "<div>\nraw *html*\n</div>"])
        case 3 if depth < 3:
            return "\n".join(f"> {each}" for each in _blocks(generator, depth + 1, 2).split("\n"))
        case 4 | 5 if depth < 3:
            marker = generator.choice(["- ", "* ", "1. ", "10) ", "- [ ] "])
            indent = "\n" + " " * len(marker)
            items = [_blocks(generator, depth + 1, generator.choice([1, 1, 2])) for _ in range(2)]
            return "\n".join(marker + item.replace("\n", indent) for item in items)
        case 6:
            rows = [[_cell(generator) for _ in range(2)] for _ in range(2)]
            first, second = (f"| {' | '.join(row)} |" for row in rows)
            return f"{first}\n|---|---|\n{second}"
        case _:
            return line


def _cell(generator: random.Random) -> str:
    return generator.choice([_flat(_line(generator, 1)).replace("|", "\\|"), "a \\| b", ""])


def _flat(line: str) -> str:
    return line.replace("\n", " ")


def _line(generator: random.Random, depth: int) -> str:
    parts = [_in_line(generator, depth) for _ in range(generator.randint(1, 4))]
    return generator.choice([" ", " ", " ", ""]).join(parts)


def _in_line(generator: random.Random, depth: int) -> str:
    words = " ".join(generator.choice(WORDS) for _ in range(generator.randint(1, 4)))
    match generator.randrange(12) if depth < 3 else 11:
        case 0 | 1:
            fence = generator.choice(["*", "_", "**", "__", "~~"])
            return f"{fence}{_line(generator, depth + 1)}{fence}"
        case 2:
            return generator.choice(CODE)
        case 3:
            return f"[{_line(generator, depth + 1)}{generator.choice(LINK_ENDS)}"
        case 4:
            return generator.choice(IMAGES)
        case 5:
            return generator.choice(["<http://a.b/c_d>", "<me@x.org>"])
        case 6:
            return generator.choice(HTML)
        case 7:
            return generator.choice(["\n", "  \n", "\\\n"])
        case _:
            return words


def tags(document: str) -> tuple[Counter[str], Counter[str]]:
    """Return the tags of a document's HTML, without the texts of images, and its code."""
    html = re.sub(r"\s+", " ", RENDERER.render(document)).replace("<del>", "<s>").replace("</del>", "</s>")
    return Counter(_TAG.findall(re.sub(r' alt="[^"]*"', "", html))), Counter(re.findall("<code.*?</code>", html))


def is_nested(document: str) -> bool:
    """Whether each element of a document's HTML ends within the element around it."""
    names: list[str] = []
    for match in re.finditer(r"<(/?)([a-zA-Z0-9]+)[^>]*>", RENDERER.render(document)):
        if match[2] in ("br", "img", "hr"):
            continue
        if not match[1]:
            names.append(match[2])
        elif not names or names.pop() != match[2]:
            return False
    return not names


def letters(document: str) -> Counter[str]:
    """Return how often a document's HTML has each character outside of tags."""
    return Counter(re.sub(r"\s|\u200b", "", _TAG.sub("", RENDERER.render(document))))
