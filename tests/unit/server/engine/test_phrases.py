"""Phrases that may not occur, and phrases that must, in any tokenization."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from translane_server.engine.options import RequiredPhrase
from translane_server.engine.phrases import RequiredPhrases, SuppressedPhrases, SurfaceIndex


def text_of(ids, surfaces):
    return b"".join(surfaces[i] for i in ids).removeprefix(b" ")


alphabet = st.sampled_from([b"a", b"b", b" ", b"\xe7", b"\x8c"])
vocabularies = st.lists(st.lists(alphabet, max_size=4).map(b"".join), min_size=3, max_size=25)
phrase_lists = st.lists(st.lists(alphabet, min_size=1, max_size=5).map(b"".join), min_size=1, max_size=5)


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


EOS = 1
SURFACES = [b"", b"", b" a", b" b", b"b", b" c", b"d", b" ab", b"\xe7", b"\x8c", b"\xab", b" "]
A, SPACE_B, B, C, D, AB = range(2, 8)


TOKENS = st.lists(st.integers(A, 10), min_size=1, max_size=6)  # with pieces of a character


def phrase(*tokens, text=None):
    return RequiredPhrase(text_of(tokens, SURFACES) if text is None else text, tokens)


def are_in(phrases, generated):
    return RequiredPhrases(phrases, SURFACES, EOS).are_in(generated)


@given(st.lists(TOKENS, max_size=4), TOKENS | st.just([]))
def test_phrases_are_there_in_any_tokenization(lists, generated):
    phrases = [phrase(*tokens) for tokens in lists]
    assert are_in(phrases, generated) == all(each.text in phrase(*generated).text for each in phrases)


def test_what_the_tokenizer_normalises_is_looked_for_as_it_is_spelled():
    assert are_in([phrase(A, B, text="ａb".encode())], [C, AB])


def test_a_phrase_without_tokens_is_passed_over():
    assert are_in([RequiredPhrase(b"a", ()), RequiredPhrase(b"", (0,))], [])


def select(phrases, parents, scores, beam_size=2, steps_left=10, banned=()):
    """One step over the whole vocabulary, with `scores` of the next tokens."""
    table = np.full((len(parents), len(SURFACES)), -9.0)
    for token, score in scores.items():
        table[:, token] = score
    table[:, list(banned)] = -np.inf
    ids = np.argsort(-table, axis=1, kind="stable")[:, : 2 * beam_size]
    totals = np.array([score for _, score in parents])[:, None] + np.take_along_axis(table, ids, axis=1)
    return RequiredPhrases(phrases, SURFACES, EOS).select(
        parents, ids, totals, lambda p, t: float(parents[p][1] + table[p, t]), beam_size, steps_left
    )


def test_a_phrase_that_is_once_does_not_come_again():
    once = RequiredPhrase(SURFACES[A], (A,), once=True)
    for required, generated, tokens in ((once, (A,), [C, B]), (once, (C,), [A, C]), (phrase(A), (A,), [A, C])):
        running, _ = select([required], [(generated, 0.0)], {A: -0.1, C: -1.0, B: -1.1})
        assert [token for _, token, *_ in running] == tokens


def test_a_banned_phrase_does_not_stop_the_search():
    running, ended = select([phrase(A)], [((), 0.0)], {C: -1.0}, steps_left=1, banned=[A, AB])
    assert running[0].token == C
    assert ended == []
