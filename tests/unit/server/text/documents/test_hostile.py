"""Documents that are made to take long end soon."""

from __future__ import annotations

import html
import re
from contextlib import suppress

import pytest
from unit.server.text.documents.translated import same, translated

from translane_server.text.documents import DocumentError

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
def test_what_a_reader_looks_for_ends_soon(kind: str, start: str, unit: str):
    data = (start + unit * (LENGTH // len(unit))).encode()
    for content in {data, data + b"></target></trans-unit></xliff>"}:
        with suppress(DocumentError):
            translated(kind, content, same)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(("kind", "unit"), UNITS)
def test_repetitions_end_soon(kind: str, unit: str):
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
