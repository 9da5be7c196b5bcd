import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from translane_server.engine.phrases import SuppressedPhrases, SurfaceIndex

SURFACES = [b"", b" the", b" cat", b" c", b"at", b"cat", b" ", b"s", b" concat", b"\xe7", b"\x8c", b"\xab", b"the"]


def banned(phrases, before, surfaces=SURFACES):
    ids = [surfaces.index(surface) for surface in before]
    mask = SuppressedPhrases(phrases, SurfaceIndex(surfaces)).banned(ids)
    assert mask.dtype == np.bool_
    return {surfaces[number] for number in np.flatnonzero(mask)}


def text_of(ids, surfaces):
    return b"".join(surfaces[i] for i in ids).removeprefix(b" ")


def test_without_phrases_nothing_is_banned():
    assert banned([], [b" the"]) == set()
    assert banned([b""], []) == set()


def test_bytes_that_mean_something_in_a_pattern_are_taken_as_they_are():
    surfaces = [b".", b"a", b"*", b"\n"]
    assert banned([b"a.", b"a\n"], [b"a"], surfaces) == {b".", b"\n"}


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
