"""Documents with random faults, or made to take long, are refused in a sentence, or translated."""

import html
import random
import re
from contextlib import suppress

import pytest
from unit.server.text.documents.test_gettext_catalogs import CATALOGUE
from unit.server.text.documents.test_pages import PAGE
from unit.server.text.documents.test_subtitles import SRT, VTT
from unit.server.text.documents.test_xliff_files import HEAD, VERSION_1, VERSION_2
from unit.server.text.documents.translated import TYPES, same, translated

from helpers.translations import WORDS
from translane_server.text.documents import DocumentError, parse
from translane_server.text.markup.xliff import escape_xml

SOURCES = {
    "txt": "Hello,\r\n\r\n  my world. \n***\n\nçlast",
    "html": PAGE,
    "md": "---\na: b\n---\n# A *title*\n\n- [two](x)\n\n```\ncode\n```\n|a|1|\n|-|-|\n\n![c](d) <b>e</b>\n",
    "xliff": HEAD + VERSION_1,
    "xliff 2": VERSION_2,
    "po": CATALOGUE,
    "srt": SRT,
    "vtt": VTT,
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", SOURCES)
def test_random_faults(name):
    dice = random.Random(9)
    kind = name.partition(" ")[0]
    replace = kind in ("po", "xliff")
    refused = 0
    for _ in range(300):
        data = bytearray(SOURCES[name].encode(dice.choice(["utf-8", "utf-8", "utf-16"])))
        for _ in range(dice.randint(0, 3)):
            place, length = dice.randrange(len(data)), dice.randint(1, 12)
            match dice.randrange(4):
                case 0:
                    data[place] = dice.choice(b"<>\"'\\#&;:=\n\r\0\xff\x80 a1[]{}*-")
                case 1:
                    del data[place : place + length]
                case 2:
                    data[place:place] = data[dice.randrange(len(data)) :][:length]
                case _:
                    data[place:place] = dice.choice(WORDS).encode()
        try:
            document = parse(bytes(data), TYPES[kind], replace_translations=replace)
            out = document.render([nasty(text.text, kind, dice) for text in document.texts])
        except DocumentError:
            refused += 1
        else:
            parse(out, TYPES[kind])
    assert 0 < refused < 290


def nasty(text: str, kind: str, dice: random.Random) -> str:
    """The text with words that look like markup. They are escaped where the server escapes them."""
    pieces = [*WORDS, "", "\n", "\r\n\r\n", "\x0c", "\x85", "00:01.000 --> 00:02.000", "12"]
    words = " ".join(dice.choices(pieces, k=4))
    return f"{escape_xml(words)} {text}" if kind in ("html", "md", "xliff") else f"{words}{text}"


LENGTH = 100_000
CUE = "1\n00:00:01,000 --> 00:00:02,000\n"
ENTRY = 'msgid "a"\nmsgstr ""\n'
UNIT = "<trans-unit><source>a</source></trans-unit>"
COMMON = ["<", "<i>", "a", "a ", "a\n", "猫", " ", "\n", "\r", "\0", "\u2028", "&", "&amp;", "-", '"', "\\"]
STARTS = {
    "txt": ("", [".\n", "a\r\n"]),
    "srt": (f"{CUE}a", ["{", "{\\", "{\\a}", "- ", "- a\n", "00:00:01,000 --> 00:00:02,000\n", f"{CUE}a\n\n", "1"]),
    "vtt": (f"WEBVTT\n\n{CUE}a", ["- a\n", "&amp;lt;", "<a &lt;>", "&lt;b&gt;", f"\n{CUE}a\n\n"]),
    "po": (
        ENTRY + 'msgid "a"\nmsgstr "',
        ['"\n"', '"\nmsgid "b"\nmsgstr "', '"\nmsgstr[0] "', '"\n#, ', '"\n"\n', "\\n", "\t", "[", "msgid "],
    ),
    "xliff": (
        "<xliff version='1.2'>" + UNIT,
        [
            UNIT,
            "<g>",
            "<g/>",
            "<source>",
            "<trans-unit><source/>",
            "<trans-unit a='",
            "<trans-unit a=''",
            "<!--",
            "]]>",
        ],
    ),
    "html": ("<p>a", ["<p>a", "<meta ", "<meta charset", "<b>a</b>", "<x ", "a='", "<!--", "<svg>", "<a title=b>"]),
    "md": ("a", ["*a ", "#", "# ", "`", "```\n", "[", "[a", "> ", "- ", "~~~\n\n# a\n\n", "# a\n\n", "|\n"]),
}
ENDS = {"po": b'"\n', "xliff": b"</xliff>"}
PAGES = ("html", "md")  # most of which is the work of `text.markup`, which has such tests of its own
UNITS = [
    (kind, unit) for kind, (_, units) in STARTS.items() for unit in (units if kind in PAGES else [*COMMON, *units])
]


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("kind", "start", "unit"),
    [
        ("html", "<meta charset=", " "),
        ("html", "<meta ", "charset"),
        ("po", '"', "\\nContent-Type:"),
        ("po", '"Content-Type: charset=', "a"),
        ("xliff", "<?xml ", "encoding"),
        ("xliff", "<?xml encoding=", " "),
        ("xliff", "<xliff version='1.2'><trans-unit><source>a</source><target", " "),
    ],
)
def test_what_a_reader_looks_for_ends_soon(kind, start, unit):
    data = (start + unit * (LENGTH // len(unit))).encode()
    for content in {data, data + b"></target></trans-unit></xliff>"}:
        with suppress(DocumentError):
            translated(kind, content, same)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(("kind", "unit"), UNITS)
def test_repetitions_end_soon(kind, unit):
    start, _ = STARTS[kind]
    data = (start + unit * (LENGTH // len(unit.encode()))).encode()
    for content in {data, data + ENDS.get(kind, b"")}:
        try:
            out = translated(kind, content, same)
        except DocumentError:
            continue
        if kind not in PAGES:
            assert said(kind, out) == said(kind, content)


def said(kind: str, data: bytes) -> str:
    text = data.decode()
    if kind == "vtt":
        text = html.unescape(html.unescape(text))
    elif kind == "xliff":
        text = re.sub("<target.*?</target>", "", text)
    elif kind == "po":
        text = re.sub('msgstr "(?s:.*?)"\n(?!")', "", text)
    return "".join(text.split())
