"""Kept parts: which one wins, and where they are cut."""

import random
from itertools import pairwise

import pytest

from translane_server.text.placeholders import Kept, Kind, cut_at, without_overlaps


@pytest.mark.parametrize(
    ("kind", "ends"), [(Kind.CLOSING_TAG, True), (Kind.EMOJI, True), (Kind.OPENING_TAG, False), (Kind.OTHER, False)]
)
def test_what_belongs_to_the_sentence_before_it(kind, ends):
    assert Kept(0, 1, kind).ends_sentence is ends


def test_the_first_part_wins_and_of_these_the_longest():
    assert without_overlaps([Kept(2, 9), Kept(0, 1), Kept(0, 3), Kept(3, 4)]) == [Kept(0, 3), Kept(3, 4)]


def test_parts_that_are_kept_in_any_case_win():
    assert without_overlaps([Kept(0, 3), Kept(4, 5), Kept(6, 9)], [Kept(2, 4), Kept(8, 9)]) == [
        Kept(2, 4),
        Kept(4, 5),
        Kept(8, 9),
    ]


def test_random_parts_are_in_order_and_apart():
    dice = random.Random(3)
    for _ in range(200):
        starts = [dice.randrange(40) for _ in range(12)]
        parts = [Kept(start, start + dice.randrange(1, 8)) for start in starts]
        over = without_overlaps(parts[:3])
        found = without_overlaps(parts[3:], over)
        assert all(one.end <= other.start for one, other in pairwise(found))
        assert set(over) <= set(found) <= set(parts)
        # what is left out overlaps something that is not
        assert all(any(each.start < part.end and part.start < each.end for each in found) for part in parts)


@pytest.mark.parametrize(
    ("places", "cut"),
    [
        ([], [Kept(2, 6, Kind.EMOJI)]),
        ([2, 6, 9], [Kept(2, 6, Kind.EMOJI)]),
        ([4], [Kept(2, 4, Kind.EMOJI), Kept(4, 6, Kind.EMOJI)]),
        ([3, 5], [Kept(2, 3, Kind.EMOJI), Kept(3, 5, Kind.EMOJI), Kept(5, 6, Kind.EMOJI)]),
    ],
)
def test_a_part_is_cut_at_places_within_it(places, cut):
    assert cut_at([Kept(2, 6, Kind.EMOJI)], places) == cut
