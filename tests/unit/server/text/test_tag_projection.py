"""Translations as atoms, which no mark cuts, and where marks are put between them."""

import random
import re
from collections import Counter
from itertools import pairwise

import pytest

from translane_server.text.marked_text import Mark, MarkedText
from translane_server.text.tag_projection import AlignedText, atoms_of, place


def parts(pieces):
    text = "".join(pieces)
    ends = [0, *(atom.end for atom in atoms_of(AlignedText(text, pieces, [None] * len(pieces)), {}))]
    return [text[start:end] for start, end in pairwise(ends)]


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        (["I", " don't", " go", "."], ["I", " ", "don't", " ", "go", "."]),
        (["well", "-", "known"], ["well-known"]),
        (["un", "known"], ["unknown"]),
        (["我们", "去"], ["我们", "去"]),
        (["我", "们"], ["我", "们"]),
        (["カー", "ド"], ["カー", "ド"]),
        (["👍🏽", "!"], ["👍🏽", "!"]),
        ([], []),
    ],
)
def test_words_signs_and_tokens_of_unspaced_scripts_stay_whole(pieces, expected):
    assert parts(pieces) == expected


def aligned(source, *pairs):
    """A translation of pieces, each with the part of the source that it comes from."""
    spans = []
    for _, part in pairs:
        at = source.find(part) if part else -1
        spans.append((at, at + len(part)) if part else None)
    pieces = [piece for piece, _ in pairs]
    return AlignedText("".join(pieces).strip(), pieces, spans)


def single(at, opening, *, before=False, after=False, parent=-1):
    return Mark(at, at, opening, parent=parent, space_before=before, space_after=after)


def pair(start, end, tag, parent=-1):
    return Mark(start, end, f"<{tag}>", f"</{tag}>", parent, is_single=False)


# A source, its translation as pieces with what each comes from, marks of the source, and the translation with them.
PLACED = {
    "tags enclose the words that they enclosed": (
        "das rote Haus ist gross",
        [(" grande", "gross"), (" es", "ist"), (" la", "das"), (" casa", "Haus"), (" roja", "rote")],
        [pair(4, 8, "b"), pair(9, 13, "i")],
        "grande es la <i>casa</i> <b>roja</b>",
    ),
    "tags around several words nest": (
        "das rote Haus",
        [(" the", "das"), (" red", "rote"), (" house", "Haus"), (".", "")],
        [pair(0, 13, "a"), pair(4, 13, "b", 0), pair(4, 8, "i", 1)],
        "<a>the <b><i>red</i> house</b></a>.",
    ),
    "a placeholder gets the spaces of the target language": (
        "我叫，你好",
        [(" My", "我"), (" name", "叫"), (" is", "叫"), (",", "，"), (" hello", "你好")],
        [single(2, "{name}")],
        "My name is {name}, hello",
    ),
    "a placeholder that touched a word touches it again": (
        "it is km far",
        [(" es", "it"), (" km", "km"), (" lejos", "far")],
        [single(6, "%d", before=True)],
        "es %dkm lejos",
    ),
    "placeholders at one place keep their order and the spaces between them": (
        "Hallo",
        [(" hello", "Hallo")],
        [single(5, "{a}", before=True, after=True), single(5, "{b}", before=True), single(5, "{c}")],
        "hello {a} {b}{c}",
    ),
    "tags without aligned words stay as an empty pair": ("a b", [(" x", "a")], [pair(2, 3, "b")], "x<b></b>"),
    "an empty translation keeps all marks": ("a", [], [pair(0, 1, "b"), single(1, "{x}", parent=0)], "<b>{x}</b>"),
}


@pytest.mark.parametrize(("source", "pieces", "marks", "expected"), PLACED.values(), ids=PLACED)
def test_marks_are_placed(source, pieces, marks, expected):
    assert place(MarkedText(source, tuple(marks)), aligned(source, *pieces), spaced=True) == expected


def test_no_mark_is_within_a_word():
    target = aligned("Haus", (" ho", "Ha"), ("use", "us"))
    assert place(MarkedText("Haus", (single(2, "{x}"),)), target, spaced=True) in {"{x}house", "house{x}"}


def test_a_placeholder_gets_no_spaces_where_the_target_language_writes_none():
    source = "My name is, hello"
    target = aligned(source, ("我", "My"), ("叫", "is"), ("，", ","), ("你好", "hello"))
    marked = MarkedText(source, (single(10, "{name}", before=True),))
    assert place(marked, target, spaced=False) == "我叫{name}，你好"


def test_tags_that_go_on_beyond_the_sentence_are_open_until_there():
    source = "eins zwei drei"
    target = aligned(source, (" three", "drei"), (" two", "zwei"), (" one", "eins"))
    ends = Mark(0, 4, "", "</b>", is_single=False)
    starts = Mark(10, 14, "<i>", "", is_single=False)
    assert place(MarkedText(source, (ends, starts)), target, spaced=True) == "three two one</b><i>"
    assert place(MarkedText(source, (starts,)), target, spaced=True) == "<i>three two one"


TAG = re.compile(r"\[(/?)(\d+)\]")


def random_marks(rng, length, first, last, parent, marks, depth=0):
    """Add random marks within a part of a text, side by side and within each other."""
    at = first
    for _ in range(rng.randint(0, 3)):
        start = rng.randint(at, last)
        end = rng.choice((start, rng.randint(start, last)))
        number = len(marks)
        if rng.random() < 0.4:
            space = rng.random() < 0.5, rng.random() < 0.5
            marks.append(Mark(start, start, f"[{number}]", parent=parent, space_before=space[0], space_after=space[1]))
            end = start
        else:
            opening = "" if not depth and not marks and start == 0 and rng.random() < 0.5 else f"[{number}]"
            marks.append(Mark(start, end, opening, f"[/{number}]", parent, is_single=False))
            if depth < 3:
                random_marks(rng, length, start, end, number, marks, depth + 1)
        at = end


def chains(text, singles):
    """Which marks each mark is within, as the tags of a text say. Raises if tags are not well nested."""
    found: dict[int, tuple[int, ...]] = {}
    stack: list[int] = []
    for closing, digits in TAG.findall(text):
        number = int(digits)
        if closing:
            if stack:
                assert stack.pop() == number
            else:
                found[number] = ()
        else:
            found[number] = tuple(stack)
            if number not in singles:
                stack.append(number)
    assert not stack
    return found


@pytest.mark.parametrize("seed", range(40))
def test_whatever_the_alignment_every_mark_is_there_once_and_within_the_marks_that_it_was_within(seed):
    rng = random.Random(seed)
    for _ in range(100):
        words = ["".join(rng.choices("abc你好ก。, '", k=rng.randint(1, 5))) for _ in range(rng.randint(0, 9))]
        source = " ".join(words)
        marks: list[Mark] = []
        random_marks(rng, len(source), 0, len(source), -1, marks)
        pieces = ["".join(rng.choices("xy 字ม.,-", k=rng.randint(1, 4))) for _ in range(rng.randint(0, 12))]
        spans = []
        for _ in pieces:
            at = rng.randint(0, max(len(source) - 1, 0))
            spans.append(rng.choice((None, (at, min(at + 2, len(source))))))
        target = AlignedText("".join(pieces).strip(), pieces, spans)
        text = place(MarkedText(source, tuple(marks)), target, spaced=rng.random() < 0.5)

        written = Counter(TAG.findall(text))
        assert written == Counter(
            found for mark in marks for part in (mark.opening, mark.closing) for found in TAG.findall(part)
        )
        singles = {number for number, mark in enumerate(marks) if mark.is_single}
        within = chains(text, singles)
        begun = {number for number, mark in enumerate(marks) if not mark.opening}
        for number, mark in enumerate(marks):
            expected = (*within[mark.parent], mark.parent) if mark.parent >= 0 else ()
            assert within[number] == tuple(each for each in expected if each not in begun), text
        assert "".join(TAG.sub("", text).split()) == "".join(target.text.split())


def test_a_placeholder_whose_bracket_is_lost_is_apart_from_words():
    source = "请看()。"
    target = aligned(source, (" Please", "请"), (" see", "看"), (".", "。"))
    assert place(MarkedText(source, (single(3, "{url}"),)), target, spaced=True) == "Please see {url}."
    kept = aligned(source, (" Please", "请"), (" see", "看"), (" (", "("), (")", ")"), (".", "。"))
    assert place(MarkedText(source, (single(3, "{url}"),)), kept, spaced=True) == "Please see ({url})."
