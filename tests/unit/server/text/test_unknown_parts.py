"""The parts of a text that a vocabulary cannot spell."""

import pytest

from translane_server.text.unknown_parts import token_spans, unknown_parts

UNK = 1


@pytest.mark.parametrize(
    ("text", "surfaces", "spans"),
    [
        ("ab c", ["a", "b", " c", ""], [(0, 1), (1, 2), (2, 4), None]),
        ("a  b", ["a", "b", ""], [(0, 1), (3, 4), None]),
        ("é!", ["é", "é", "!"], [(0, 1), (0, 1), (1, 2)]),
        ("x", ["", "x", "?"], [None, (0, 1), None]),
    ],
)
def test_where_tokens_are(text, surfaces, spans):
    assert token_spans(text, surfaces) == spans


@pytest.mark.parametrize(
    ("text", "surfaces", "ids", "parts"),
    [
        ("我玥你", ["我", "玥", "你"], [5, UNK, 6], ["玥"]),
        ("naïve, no", ["na", "ï", "ve", ",", " no"], [5, UNK, 6, 7, 8], ["naïve"]),
        ("мы с am", ["мы", " с", " am"], [UNK, UNK, 5], ["мы с"]),
        ("x ☃!", ["x", " ☃", "!"], [5, UNK, 6], ["☃"]),
        ("don’t", ["don", "’", "t"], [5, UNK, 6], ["’"]),
    ],
)
def test_what_is_unknown(text, surfaces, ids, parts):
    found = unknown_parts(text, ids, surfaces, UNK)
    assert [text[start:end] for start, end in found] == parts
