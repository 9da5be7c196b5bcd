"""Texts with marks, made of items."""

import pytest

from translane_server.text.marked_text import Mark, MarkedText
from translane_server.text.markup.document import MOST_DEPTH, MOST_TAGS, Item, Kind, MarkupError
from translane_server.text.markup.inline import Marking


def marked(*parts):
    """Return the text of items: "<" opens, ">" closes, "#" is a thing, all else is text."""
    kinds = {"<": Kind.OPEN, ">": Kind.CLOSE, "#": Kind.SINGLE}
    items = [
        Item(kinds.get(part, Kind.TEXT), number, number + 1, "" if part in kinds else part)
        for number, part in enumerate(parts)
    ]
    return Marking(items, lambda start, end: f"{start}-{end}").marked_text()


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        (["a  b\n c"], "a b c"),
        ([" a ", " b "], "a b"),
        (["a\u00a0 b"], "a\u00a0 b"),
        ([], ""),
    ],
)
def test_white_space_is_collapsed(parts, text):
    assert marked(*parts) == MarkedText(text)


def test_a_pair_encloses_its_words_without_the_space_around_them():
    assert marked("a", "<", " b ", ">", "c") == MarkedText("a b c", (Mark(2, 3, "1-2", "3-4", is_single=False),))


def test_a_pair_within_another_has_it_as_its_parent():
    found = marked("<", "a ", "<", "b", ">", ">")
    assert found.text == "a b"
    assert [(mark.start, mark.end, mark.parent) for mark in found.marks] == [(0, 3, -1), (2, 3, 0)]


@pytest.mark.parametrize(
    ("parts", "text", "spaces"),
    [
        (["a ", "#", " b"], "a b", (True, True)),
        (["a", "#", "b"], "ab", (False, False)),
        (["a ", "#", "."], "a.", (True, False)),
        (["(", "#", " b"], "( b", (False, True)),
        (["a ", "#"], "a", (True, False)),
    ],
)
def test_a_thing_knows_the_space_around_it(parts, text, spaces):
    found = marked(*parts)
    (mark,) = found.marks
    assert found.text == text
    assert (mark.space_before, mark.space_after) == spaces
    assert mark.start == mark.end


def test_too_many_tags_are_refused():
    with pytest.raises(MarkupError, match=f"more than {MOST_TAGS} tags"):
        marked(*["#"] * (MOST_TAGS + 1))
    with pytest.raises(MarkupError, match=f"more than {MOST_DEPTH} pairs"):
        marked(*["<"] * (MOST_DEPTH + 1))
