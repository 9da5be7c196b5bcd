"""What a reader sees as one character, and the normal form of a text."""

import random
import sys
import unicodedata

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from translane_server.text import characters
from translane_server.text.characters import boundary_before, composed, is_boundary


def boundaries(text):
    return [index for index in range(len(text) + 1) if is_boundary(text, index)]


def test_the_boundaries_are_those_of_unicode():
    """Found one by one, they are the ends of the characters that `regex` finds from the start of the text."""
    chance = random.Random(7)
    kinds = [
        "CR",
        "LF",
        "Control",
        "Extend",
        "ZWJ",
        "RI",
        "Prepend",
        "SpacingMark",
        "L",
        "V",
        "T",
        "LV",
        "LVT",
        "Other",
    ]
    every = "".join(chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000)
    pools = [regex.findall(rf"\p{{GCB={kind}}}", every) for kind in kinds]
    pools += [
        regex.findall(r"[\p{Extended_Pictographic}]", every),
        regex.findall(r"[\p{Devanagari}\p{Malayalam}]", every),
    ]
    for _ in range(10_000):
        text = "".join(chance.choice(chance.choice(pools)) for _ in range(8))
        expected = [0, *(match.end() for match in regex.finditer(r"\X", text))]
        assert boundaries(text) == expected, [hex(ord(c)) for c in text]
        for index in range(1, len(text)):
            assert boundary_before(text, index) == max(place for place in expected if place <= index)


@pytest.mark.parametrize("part", ["\u0301", "👩\u200d", "क्"])
def test_a_character_of_a_million_code_points_takes_no_longer_at_its_end(part):
    """A search from its start at each place would take hours."""
    text = part * (1_000_000 // len(part))
    places = range(len(text) - 10_000, len(text))
    assert not any(is_boundary(text, index) for index in places)
    assert boundary_before(text[:10_000], 9_000) == 0


MARKS = "\u0301\u0323\u0315\u0f73\u0344\u3099\u09be"
PIECES = st.one_of(
    st.text(max_size=40),
    st.text("ea각\u1100\u1161\u11a8か\u09c7x", max_size=40),
    st.text(MARKS, max_size=30).map(lambda marks: "e" + marks),
)


@given(st.lists(PIECES, max_size=60).map("".join))
def test_the_same_as_of_the_whole_text(text):
    assert composed(text) == unicodedata.normalize("NFC", text)


def test_where_a_piece_ends_nothing_composes():
    """Each character that may follow a cut leaves every kind of character before it as it is."""
    before = ["e", "\u09c7", "\u1100", "가", "か", "\u0f71", "e\u0301", "\U00011347", "\u0dd9"]
    assert all(unicodedata.is_normalized("NFC", other) is (other != "e\u0301") for other in before)
    for point in range(sys.maxunicode + 1):
        character = chr(point)
        assigned = unicodedata.category(character) not in ("Cn", "Co", "Cs")
        if assigned and not characters._may_change_with_the_one_before(character):
            alone = unicodedata.normalize("NFC", character)
            whole = "\n".join(other + character for other in before)
            expected = "\n".join(unicodedata.normalize("NFC", other) + alone for other in before)
            assert unicodedata.normalize("NFC", whole) == expected, hex(point)


@pytest.mark.parametrize("marks", ["\u0315\u0300", "\u0f73", "\u0327\u0301\u0345"])
def test_a_million_marks_take_no_longer_than_a_million_letters(marks):
    """The whole run at once would take an hour."""
    text = "e" + marks * (1_000_000 // len(marks))
    assert len(composed(text)) >= 999_990
