import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from translane_server.engine.options import RequiredPhrase
from translane_server.engine.phrases import RequiredPhrases

EOS = 1
SURFACES = [b"", b"", b" a", b" b", b"b", b" c", b"d", b" ab", b"\xe7", b"\x8c", b"\xab", b" "]
A, SPACE_B, B, C, D, AB = range(2, 8)


def phrase(*tokens, text=None, surfaces=SURFACES):
    spelled = b"".join(surfaces[token] for token in tokens).removeprefix(b" ")
    return RequiredPhrase(spelled if text is None else text, tokens)


def progress(phrases, generated, surfaces=SURFACES):
    return RequiredPhrases(phrases, surfaces, EOS).progress(generated)


TOKENS = st.lists(st.integers(A, 10), min_size=1, max_size=6)  # with pieces of a character


@given(st.lists(TOKENS, max_size=4), TOKENS | st.just([]))
@settings(max_examples=500)
def test_progress_is_counted_in_tokens_of_what_the_text_lacks(lists, generated):
    """A phrase is there in any tokenisation, once for all of its kind, and comes with one that it is inside of.

    What the last tokens have begun counts for one phrase: the others come after it.
    """
    tokens_of: dict[bytes, tuple[int, ...]] = {}
    for each in sorted((phrase(*tokens) for tokens in lists), key=lambda each: len(each.token_ids)):
        tokens_of.setdefault(each.text, each.token_ids)
    text = phrase(*generated).text
    missing = [spelled for spelled in tokens_of if spelled not in text]
    outer = [one for one in missing if not any(one != other and one in other for other in missing)]
    begun = {}
    for spelled in outer:
        tokens = tokens_of[spelled]
        ends = [n for n in range(len(tokens)) if tuple(generated[len(generated) - n :]) == tokens[:n]]
        begun[tokens] = max(n for n in ends if n <= len(generated))
    found = progress([phrase(*tokens) for tokens in lists], generated)
    assert found.met == len(tokens_of) - len(missing)
    assert found.remaining == sum(map(len, begun)) - max(begun.values(), default=0)
    assert set(found.next_tokens) == {tokens[n] for tokens, n in begun.items()} | {tokens[0] for tokens in begun}
    assert found.complete == (not missing)


def test_what_the_tokenizer_normalises_is_looked_for_as_it_is_spelled():
    assert progress([phrase(A, B, text="ａb".encode())], [C, AB]).complete


def test_a_phrase_without_tokens_is_passed_over():
    assert progress([RequiredPhrase(b"a", ()), RequiredPhrase(b"", (0,))], []).complete


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


def test_a_hypothesis_that_begins_the_phrase_has_a_slot():
    running, ended = select([phrase(A, D)], [((), 0.0)], {C: -1.0, B: -1.1, D: -1.2, EOS: -0.1})
    assert [token for _, token, _ in running] == [C, A]
    assert ended == []


def test_a_phrase_that_is_once_does_not_come_again():
    once = RequiredPhrase(SURFACES[A], (A,), once=True)
    for required, ended, tokens in ((once, (A,), [C, B]), (once, (C,), [A, C]), (phrase(A), (A,), [A, C])):
        running, _ = select([required], [(ended, 0.0)], {A: -0.1, C: -1.0, B: -1.1})
        assert [token for _, token, _ in running] == tokens


def test_when_time_is_short_only_the_phrase_goes_on():
    running, _ = select([phrase(A, D)], [((), 0.0), ((C, A), -5.0)], {C: -0.1}, steps_left=3)
    assert {(parent, token) for parent, token, _ in running} == {(0, A), (1, D)}
    running, _ = select([phrase(A, D)], [((), 0.0), ((C, A), -5.0)], {C: -0.1}, steps_left=2)
    assert {(parent, token) for parent, token, _ in running} == {(1, D)}


def test_a_banned_phrase_does_not_stop_the_search():
    running, ended = select([phrase(A)], [((), 0.0)], {C: -1.0}, steps_left=1, banned=[A, AB])
    assert running[0].token == C
    assert ended == []


def test_a_phrase_that_is_too_long_is_given_up_for_one_that_is_not():
    running, ended = select([phrase(A), phrase(C, D, C, D)], [((), 0.0)], {EOS: -0.1, B: -0.2}, steps_left=2)
    assert [token for _, token, _ in running] == [A]
    assert ended == []
    running, ended = select([phrase(C, D, C, D)], [((), 0.0)], {EOS: -0.1, B: -0.2}, steps_left=2)
    assert running[0].token == B
    assert ended == [(0, -0.1)]
