"""Documents with random faults are refused in a sentence, or translated."""

from __future__ import annotations

import random

import pytest
from unit.server.text.documents.test_gettext_catalogs import CATALOGUE
from unit.server.text.documents.test_pages import PAGE
from unit.server.text.documents.test_subtitles import SRT, VTT
from unit.server.text.documents.test_xliff_files import HEAD, VERSION_1, VERSION_2
from unit.server.text.documents.translated import TYPES

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
def test_random_faults(name: str):
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
