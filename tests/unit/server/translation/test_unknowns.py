"""Unknown tokens and what is written for them."""

from translane_server.engine.sequence import AlignedToken
from translane_server.translation.translations import replacements

UNKNOWN = 1


def test_unknown_tokens_become_the_source_they_are_aligned_to():
    alignment = [AlignedToken(0, 0.9), AlignedToken(2, 0.8), AlignedToken(1, 0.7)]
    assert replacements([7, UNKNOWN, UNKNOWN], alignment, UNKNOWN, ["a", " b", " c "]) == {1: "c", 2: "b"}


def test_without_anything_visible_there_the_unknown_token_stays():
    assert replacements([UNKNOWN], [AlignedToken(1, 0.9)], UNKNOWN, ["a", " "]) == {}


def test_a_very_long_part_of_the_source_replaces_nothing():
    alignment = [AlignedToken(0, 0.9), AlignedToken(1, 0.9)]
    assert replacements([UNKNOWN] * 2, alignment, UNKNOWN, ["x" * 1024, "y" * 1025]) == {0: "x" * 1024}
