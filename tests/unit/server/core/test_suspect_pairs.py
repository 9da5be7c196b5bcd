"""Rules for pairs that look like mistakes."""

import math

import pytest

from translane_server.core.suspect_pairs import COPY, EMPTY, RATIO, suspicion


@pytest.mark.parametrize(
    ("source", "translation", "pieces", "max_ratio", "expected"),
    [
        ("一", "one", (2, 2), 1.0, ""),
        ("一", "", (2, 1), math.inf, EMPTY),
        ("a", "a", (2, 2), math.inf, COPY),
        ("一", "one two", (2, 4), 2.0, ""),
        ("一", "one two", (2, 5), 2.0, RATIO),
        ("一二", "one", (5, 2), 2.0, RATIO),
        ("一", "one", (2, 0), math.inf, ""),
    ],
)
def test_the_first_rule_that_fits_is_told(source, translation, pieces, max_ratio, expected):
    of_source, of_translation = pieces
    assert suspicion(source, translation, of_source, of_translation, max_ratio) == expected
