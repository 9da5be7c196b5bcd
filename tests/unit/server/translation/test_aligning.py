"""Which part of the source each token of a translation comes from."""

import pytest

from translane_server.engine.sequence import AlignedToken
from translane_server.translation.translations import aligned_text


def test_each_token_comes_from_its_source_token():
    found = aligned_text(
        "a cat", [b"a", b" cat"], "一只猫", ["一只", "猫"], [AlignedToken(0, 0.9), AlignedToken(1, 0.8)]
    )
    assert found.pieces == ["a", " cat"]
    assert found.sources == [(0, 2), (2, 3)]


def test_a_source_token_without_text_is_no_part():
    found = aligned_text("a", [b"a"], "猫", ["猫", ""], [AlignedToken(1, 1.0)])
    assert found.sources == [None]


def test_bytes_of_a_character_become_one_piece():
    first, *others = [bytes([byte]) for byte in "猫".encode()]
    found = aligned_text("猫", [first, *others], "cat", ["cat"], [AlignedToken(0, 1.0)] * 3)
    assert found.pieces == ["", "", "猫"]


def test_a_character_that_is_cut_off_is_replaced():
    found = aligned_text("a\ufffd", [b"a", "猫".encode()[:2]], "x", ["x"], [AlignedToken(0, 1.0)] * 2)
    assert "".join(found.pieces) == found.text == "a\ufffd"


@pytest.mark.parametrize(
    ("surfaces", "source", "sources"),
    [
        ([b"aa", b"bb"], "wxyz", [(0, 2), (2, 4)]),
        ([b"a", b"bbb"], "wxyz", [(0, 1), (1, 4)]),
        ([b"a", b""], "wx", [(0, 2), (2, 3)]),
        ([b"a", b"b", b"c"], "w", [(0, 1)] * 3),
        ([b"a"], "", [None]),
        ([], "w", []),
    ],
)
def test_without_alignment_tokens_come_from_the_same_share(surfaces, source, sources):
    text = b"".join(surfaces).decode()
    assert aligned_text(text, surfaces, source, [source], ()).sources == sources
