"""Blocks as sentences and the text between them: everything is written once, in its order, and tags nest."""

import random
import re

import pytest

from translane_server.text.marked_text import Mark, MarkedBlock, MarkedText
from translane_server.text.placeholders import Kept


def random_block(choice):
    """A block with nested marks, as its markup has it, and the tags in order."""
    text = "".join(choice.choice("ab .") for _ in range(choice.randrange(12)))
    places = sorted(choice.choices(range(len(text) + 1), k=choice.randrange(8)))
    marks: list[tuple[int, int, str, str, int]] = []
    opened: list[int] = []
    written, done = [], 0

    def write(place):
        nonlocal done
        written.append(text[done:place])
        done = place

    def close(place):
        write(place)
        number = opened.pop()
        start, _, tag, _, parent = marks[number]
        marks[number] = (start, place, tag, f"</{number}>", parent)
        written.append(f"</{number}>")

    for place in places:
        if opened and choice.random() < 0.4:
            close(place)
            continue
        write(place)
        number, parent = len(marks), opened[-1] if opened else -1
        written.append(f"<{number}>")
        marks.append((place, place, f"<{number}>", "", parent))
        if choice.random() < 0.7:
            opened.append(number)
    while opened:
        close(len(text))
    write(len(text))
    built = [
        Mark(start, end, tag, closing, parent, is_single=not closing) for start, end, tag, closing, parent in marks
    ]
    return MarkedText(text, built), "".join(written)


def written(marked):
    """A sentence with its marks at the places that they have in the source."""
    out, done = [], 0

    def write(place):
        nonlocal done
        out.append(marked.text[done:place])
        done = place

    def is_within(number, parent):
        while number >= 0 and number != parent:
            number = marked.marks[number].parent
        return number == parent

    numbers: list[int] = []
    for number, mark in enumerate(marked.marks):
        while numbers and not is_within(mark.parent, numbers[-1]):
            last = marked.marks[numbers.pop()]
            write(last.end)
            out.append(last.closing)
        write(mark.start)
        out.append(mark.opening)
        if not mark.is_single:
            numbers.append(number)
    while numbers:
        last = marked.marks[numbers.pop()]
        write(last.end)
        out.append(last.closing)
    write(len(marked.text))
    return "".join(out)


@pytest.mark.parametrize("seed", range(20))
def test_sentences_and_gaps_are_the_block(seed):
    choice = random.Random(seed)
    for _ in range(100):
        block, whole = random_block(choice)
        sentences = [match.span() for match in re.finditer(r"[ab]+(?: [ab]+)*\.*", block.text)]
        found = MarkedBlock(block)
        gaps = found.gaps(sentences)
        texts, last = [], -1
        for start, end in sentences:
            texts.append(written(found.sentence(start, end, last).marked))
            last = end
        assert "".join(gap + text for gap, text in zip(gaps, [*texts, ""], strict=True)) == whole


@pytest.mark.parametrize("seed", range(4))
def test_marks_know_the_mark_around_them(seed):
    choice = random.Random(seed)
    for _ in range(100):
        block, _ = random_block(choice)
        kept = [Kept(at, at + 1) for at, c in enumerate(block.text) if c == "b"]
        marked = MarkedBlock(block, kept).sentence(0, len(block.text)).marked
        assert "b" not in marked.text
        assert sum(mark.opening == "b" for mark in marked.marks) == len(kept)
        for number, mark in enumerate(marked.marks):
            assert mark.parent < number
            assert 0 <= mark.start <= mark.end <= len(marked.text)
            if mark.parent >= 0:
                around = marked.marks[mark.parent]
                assert not around.is_single
                assert around.start <= mark.start <= mark.end <= around.end


def test_text_between_marks_is_escaped_and_marks_are_not():
    block = MarkedText("< a < ", [Mark(0, 6, "<i>", "</i>", is_single=False)])
    gaps = MarkedBlock(block).gaps([(2, 3)], lambda text: text.replace("<", "&lt;"))
    assert gaps == ["<i>&lt; ", " &lt; </i>"]


@pytest.mark.parametrize(
    ("text", "part", "left", "spaces"),
    [
        ("a {x} b", "{x}", "a b", (True, True)),
        ("a {x}, b", "{x}", "a, b", (True, False)),
        ("{x} a", "{x}", "a", (False, True)),
        ("a {x}", "{x}", "a", (True, False)),
        ("({x} a)", "{x}", "(a)", (False, True)),
        ("a{x}b", "{x}", "ab", (False, False)),
        ("你好{x}。", "{x}", "你好。", (False, False)),
    ],
)
def test_white_space_around_what_is_taken_out(text, part, left, spaces):
    start = text.index(part)
    taken = MarkedBlock(MarkedText(text), [Kept(start, start + len(part))]).sentence(0, len(text))
    (mark,) = taken.marked.marks
    assert taken.marked.text == left
    assert (mark.space_before, mark.space_after) == spaces
    assert all(text[taken.in_block(place)] == character for place, character in enumerate(left))
