"""Translations as atoms, which no mark cuts."""

from itertools import pairwise

import pytest

from translane_server.text.tag_projection import AlignedText, Atom, atoms_of


def atoms(pieces, sources=None, text=None):
    sources = sources or [None] * len(pieces)
    numbers = {sum(span): number for number, span in enumerate(sorted({span for span in sources if span}))}
    target = AlignedText("".join(pieces) if text is None else text, pieces, sources)
    return atoms_of(target, numbers)


def parts(pieces, text=None):
    text = "".join(pieces) if text is None else text
    ends = [0, *(atom.end for atom in atoms(pieces, text=text))]
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


def test_an_atom_has_the_places_of_its_tokens_and_white_space_has_none():
    assert atoms(["a", " cat", "s", "!"], [(0, 1), (1, 3), None, (3, 4)]) == [
        Atom(1, (0,), 1.0),
        Atom(2, (), 0.25),
        Atom(6, (1,), 1.0),
        Atom(7, (2,), 0.25),
    ]


def test_white_space_at_the_start_of_the_first_token_is_no_part_of_the_text():
    assert atoms([" a", " b"], [(0, 1), (1, 2)], text="a b") == [
        Atom(1, (0,), 1.0),
        Atom(2, (), 0.25),
        Atom(3, (1,), 1.0),
    ]
