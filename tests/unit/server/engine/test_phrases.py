import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from translane_server.engine.phrases import SuppressedPhrases, SurfaceIndex, extended, tail_of

SURFACES = [b"", b" the", b" cat", b" c", b"at", b"cat", b" ", b"s", b" concat", b"\xe7", b"\x8c", b"\xab", b"the"]


def token(surface):
    return SURFACES.index(surface)


def banned(phrases, before, surfaces=SURFACES):
    ids = [surfaces.index(surface) for surface in before]
    mask = SuppressedPhrases(phrases, SurfaceIndex(surfaces)).banned(ids)
    assert mask.dtype == np.bool_
    return {surfaces[number] for number in np.flatnonzero(mask)}


def text_of(ids, surfaces):
    return b"".join(surfaces[i] for i in ids).removeprefix(b" ")


def test_a_phrase_is_found_in_any_tokenisation():
    assert banned([b"cat"], [b" the"]) == {b" cat", b"cat", b" concat"}
    assert banned([b"cat"], [b" the", b" c"]) == {b" cat", b"cat", b" concat", b"at"}


def test_a_phrase_may_span_several_tokens_and_end_within_one():
    assert b" cat" in banned([b"the ca"], [b" the"])
    assert b" the" not in banned([b"the ca"], [b" the"])


def test_a_phrase_may_span_pieces_of_a_character():
    assert banned(["猫".encode()], [b" the", b"\xe7", b"\x8c"]) == {b"\xab"}
    assert banned(["猫".encode()], [b" the", b"\x8c"]) == set()


def test_the_first_space_is_no_part_of_the_text():
    assert banned([b" cat"], []) == set()
    assert banned([b" cat"], [b""]) == set()
    assert banned([b" cat"], [b" "]) == {b" cat"}, "the second space is"
    assert banned([b" cat"], [b" c"]) == {b" cat"}
    assert banned([b"cat"], []) == {b" cat", b"cat", b" concat"}


def test_a_phrase_that_is_there_already_bans_nothing():
    assert banned([b"cat", b"the cat s"], [b" the", b" cat"]) == {b"cat", b" cat", b" concat"}


def test_without_phrases_nothing_is_banned():
    assert banned([], [b" the"]) == set()
    assert banned([b""], []) == set()


def test_bytes_that_mean_something_in_a_pattern_are_taken_as_they_are():
    surfaces = [b".", b"a", b"*", b"\n"]
    assert banned([b"a.", b"a\n"], [b"a"], surfaces) == {b".", b"\n"}


@pytest.mark.parametrize("size", range(9))
def test_the_tail_is_the_end_of_the_text(size):
    ids = [token(s) for s in (b"", b" the", b"", b" c", b"at")]
    assert tail_of(ids, SURFACES, size) == b"the cat"[max(0, 7 - size) :]


def test_a_text_without_bytes_has_not_begun():
    assert tail_of([0, 0], SURFACES, 4) is None
    assert tail_of([token(b" ")], SURFACES, 4) == b""
    assert extended(None, b" cat") == b"cat"
    assert extended(b"", b" cat") == b" cat"


alphabet = st.sampled_from([b"a", b"b", b" ", b"\xe7", b"\x8c"])
vocabularies = st.lists(st.lists(alphabet, max_size=4).map(b"".join), min_size=3, max_size=25)
phrase_lists = st.lists(st.lists(alphabet, min_size=1, max_size=5).map(b"".join), min_size=1, max_size=5)


@given(vocabularies, phrase_lists, st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_a_text_of_what_is_left_has_no_phrase_and_nothing_else_is_banned(surfaces, phrases, generator):
    suppressed = SuppressedPhrases(phrases, SurfaceIndex(surfaces))
    ids: list[int] = []
    for _ in range(12):
        order = np.array(generator.sample(range(len(surfaces)), len(surfaces)))
        mask = suppressed.banned(ids)[order]
        for candidate, is_banned in zip(order.tolist(), mask.tolist(), strict=True):
            text = text_of([*ids, candidate], surfaces)
            assert is_banned == any(phrase in text for phrase in phrases)
        if mask.all():
            break
        ids.append(int(order[~mask][0]))


@given(vocabularies, phrase_lists, st.lists(st.integers(0, 24), max_size=8))
@settings(max_examples=150, deadline=None)
def test_after_any_tokens_what_ends_in_the_new_one_is_banned(surfaces, phrases, before):
    """Forced tokens may hold a phrase."""
    ids = [i % len(surfaces) for i in before]
    mask = SuppressedPhrases(phrases, SurfaceIndex(surfaces)).banned(ids)
    begun = text_of(ids, surfaces)
    for candidate, is_banned in enumerate(mask.tolist()):
        text = text_of([*ids, candidate], surfaces)
        ends = any(
            text[start : start + len(p)] == p and start + len(p) > len(begun) for p in phrases for start in range(99)
        )
        assert is_banned == ends


@given(vocabularies, phrase_lists)
@settings(max_examples=100, deadline=None)
def test_the_index_finds_tokens_by_what_they_add(surfaces, texts):
    index = SurfaceIndex(surfaces)
    for text in texts:
        assert index.containing(text).tolist() == [text in surface for surface in surfaces]
        assert index.containing(text, first=True).tolist() == [
            text in surface.removeprefix(b" ") for surface in surfaces
        ]
        assert set(index.starting(text).tolist()) == {
            token for token, surface in enumerate(surfaces) if surface.startswith(text)
        }
