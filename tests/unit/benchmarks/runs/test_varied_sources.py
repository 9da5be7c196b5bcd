import random

from benchmarks.runs.varied_sources import variations

SOURCES = [list("abcd"), list("abxd"), list("aycd"), list("efgh"), list("ab")]


def test_a_variation_swaps_pieces_that_have_the_same_neighbours():
    found = list(variations(SOURCES, "".join, {"".join(source) for source in SOURCES}, 10, random.Random(0)))
    assert found == []  # every swap gives another source
    assert list(variations(SOURCES, "".join, set(), 3, random.Random(0))) != []


def test_as_many_different_variations_as_asked_for_and_none_that_is_known():
    known = {"abcd", "abxd"}
    found = list(variations(SOURCES, "".join, known, 2, random.Random(1)))
    assert len(set(found)) == len(found) == 2
    assert not known & set(found)
