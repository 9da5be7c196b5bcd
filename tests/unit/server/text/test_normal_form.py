"""The same as unicodedata has it, but for runs of marks that no writing has; and in no time for those."""

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from translane_server.text import characters
from translane_server.text.characters import composed

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
