"""Blocks of what stands in a line, and texts with marks, made of items."""

import re

import pytest

from translane_server.text.marked_text import Mark, MarkedText
from translane_server.text.markup.document import MOST_DEPTH, MOST_TAGS, Item, Kind, MarkupError
from translane_server.text.markup.inline import Marking, blocks_of, fixed

_PART = re.compile(r"<br>|<(/?)(\w+)>|\[(\w*)\]|[^<\[]+")


def items(source):
    """Return the items of a source in a small notation: <b> and </b> are a pair, [] is a thing, [w] is a word."""
    found = []
    for match in _PART.finditer(source):
        span = match.span()
        if match[0] == "<br>":
            found.append(Item(Kind.BREAK, *span))
        elif match[2]:
            found.append(Item(Kind.CLOSE if match[1] else Kind.OPEN, *span, name=match[2]))
        elif match[3] is not None:
            found.append(Item(Kind.SINGLE, *span, is_word=bool(match[3])))
        else:
            found.append(Item(Kind.TEXT, *span, match[0]))
    return found


def blocks(source, *, free=True):
    def refer(start, end):
        return source[start:end]

    return [
        (source[each.start : each.end], each.marked.text) for each in blocks_of(source, items(source), refer, free=free)
    ]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a b", [("a b", "a b")]),
        ("  a \u00a0", [("a", "a")]),
        ("a <b>c</b> d", [("a <b>c</b> d", "a c d")]),
        ("<b>a</b>", [("a", "a")]),
        ("<b><i>a c</i></b> []", [("a c", "a c")]),
        ("[] a []", [("a", "a")]),
        ("[w] a", [("[w] a", "a")]),
        ("a<br>b", [("a", "a"), ("b", "b")]),
        ("a <b>c", [("a", "a"), ("c", "c")]),
        ("a </b> c", [("a", "a"), ("c", "c")]),
        ("!? []", []),
        ("", []),
    ],
)
def test_what_is_a_block(source, expected):
    assert blocks(source) == expected


def test_no_block_has_a_tag_of_pairs_that_cross():
    assert "".join(block for block, _ in blocks("a <b>c <i>d</b> e</i> f")) == "acdef"


def test_tags_around_all_of_a_block_stay_in_it_where_they_depend_on_others():
    assert blocks("<b><i>a</i></b>", free=False) == [("<b><i>a</i></b>", "a")]
    assert blocks("<b>a</b>", free=False) == [("a", "a")]


def test_a_pair_around_nothing_is_one_thing():
    (found,) = blocks_of(source := "a <b>[w]</b> c", items(source), lambda start, end: source[start:end])
    (mark,) = found.marked.marks
    assert (mark.opening, mark.is_single) == ("<b>[w]</b>", True)


def test_tags_that_cannot_move_are_fixed():
    source = "a <b>c <i>d</i> <u>[]</u>"
    assert [source[item.start : item.end] for item in fixed(items(source)) if item.name] == ["<b>", "<u>", "</u>"]


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
