import functools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from translane_server.engine.beam import best_continuations
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


# Searches over a random language model: scores of the next token, by the last one.


class RandomModel:
    def __init__(self, seed, size):
        generator = np.random.default_rng(seed)
        logits = generator.normal(scale=2.0, size=(size, size))
        logits[:, EOS] += generator.uniform(-3, 3)
        logits[:, 0] = -np.inf
        self.log_probs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        letters = [bytes([97 + i]) for i in range(20)]
        words = [b" " + x for x in letters] + letters + [x + y for x in letters for y in letters]
        order = generator.permutation(len(words))
        pieces = [b"\xe7", b"\x8c", b"\xab"]
        self.surfaces = [b"", b"", *pieces, *(words[i] for i in order)][:size]

    def text(self, ids):
        return b"".join(self.surfaces[i] for i in ids).removeprefix(b" ")


def search(model, phrases, beam_size, max_length):
    """Ended hypotheses, best first: their score per token, their tokens, and whether eos ended them."""
    requirements = RequiredPhrases(phrases, model.surfaces, EOS)
    beams: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    pool = []
    for step in range(max_length):
        table = model.log_probs[[ids[-1] if ids else 0 for ids, _ in beams]]
        order = np.argsort(-table, axis=1, kind="stable")[:, : 2 * beam_size]
        totals = np.array([score for _, score in beams])[:, None] + np.take_along_axis(table, order, axis=1)
        score_of = functools.partial(lambda table, beams, p, t: beams[p][1] + table[p, t], table, beams)
        running, ended = requirements.select(beams, order, totals, score_of, beam_size, max_length - step)
        assert len(running) <= beam_size
        assert len({(p, t) for p, t, _ in running}) == len(running)
        assert [score for *_, score in running] == sorted((s for *_, s in running), reverse=True)
        for parent, token, score in running:
            assert score == pytest.approx(score_of(parent, token))
            assert token != EOS
        pool += [(score / (step + 1), beams[parent][0], True) for parent, score in ended]
        beams = [((*beams[parent][0], token), score) for parent, token, score in running]
        if not beams:
            break
    pool += [(score / max_length, ids, False) for ids, score in beams]
    return sorted(pool, key=lambda ended: -ended[0])


@st.composite
def tasks(draw):
    model = RandomModel(draw(st.integers(0, 10**6)), draw(st.integers(20, 50)))
    tokens = st.integers(2, draw(st.integers(4, len(model.surfaces) - 1)))
    lists = draw(st.lists(st.lists(tokens, min_size=1, max_size=5), min_size=1, max_size=4))
    phrases = [phrase(*ids, surfaces=model.surfaces) for ids in lists]
    return model, [p for p in phrases if p.text], draw(st.integers(2, 8))


@given(tasks(), st.integers(0, 10))
@settings(max_examples=200, deadline=None)
def test_every_phrase_occurs_where_the_length_allows(task, spare):
    model, phrases, beam_size = task
    max_length = sum(len(p.token_ids) for p in phrases) + 1 + spare
    hypotheses = search(model, phrases, beam_size, max_length)
    assert hypotheses
    for _, ids, _ in hypotheses:
        assert all(p.text in model.text(ids) for p in phrases)
        assert len(ids) <= max_length
    assert any(by_eos for *_, by_eos in hypotheses) or max_length == len(hypotheses[0][1])


@given(tasks(), st.integers(1, 20))
@settings(max_examples=100, deadline=None)
def test_where_the_length_holds_some_phrases_those_occur(task, max_length):
    model, phrases, beam_size = task
    hypotheses = search(model, phrases, beam_size, max_length)
    assert hypotheses
    length, fitting = 0, []
    for p in sorted(phrases, key=lambda p: len(p.token_ids)):
        length += len(p.token_ids)
        fitting += [p] * (length <= max_length)
    for _, ids, _ in hypotheses:
        assert sum(p.text in model.text(ids) for p in phrases) >= min(1, len(fitting))
        if len(fitting) == len(phrases):
            assert all(p.text in model.text(ids) for p in phrases)


@given(st.integers(0, 10**6), st.integers(2, 5))
@settings(max_examples=100, deadline=None)
def test_with_the_phrases_there_it_is_ordinary_beam_search(seed, beam_size):
    generator = np.random.default_rng(seed)
    scores = generator.normal(size=beam_size) - 5
    candidates = -np.sort(generator.exponential(size=(beam_size, 2 * beam_size)), axis=1)
    ids = np.array([generator.permutation(np.arange(1, 30))[: 2 * beam_size] for _ in scores])
    surfaces = [b"", b"", *(b"x%d." % i for i in range(28))]
    parents = [((2, i), score) for i, score in enumerate(scores.tolist())]
    running, ended = RequiredPhrases([phrase(2, surfaces=surfaces)], surfaces, EOS).select(
        parents, ids, scores[:, None] + candidates, lambda *_: pytest.fail("not needed"), beam_size, 9
    )
    log_probs: Any = candidates  # as precise as the scores of `select` are here, and so the same
    going, ending = best_continuations(
        range(beam_size), scores.tolist(), ids, log_probs, log_probs, beam_size=beam_size, eos=EOS, all_end=False
    )
    assert running == [(beam, token, score) for beam, token, score, _ in going]
    assert ended == [(beam, score) for beam, _, score, _ in ending]


def forced_at_the_end(model, phrases, max_length):
    """The baseline: greedy search, and then phrases that are not there, one after the other."""
    best = -math.inf
    ids: list[int] = []
    score = 0.0
    while True:
        missing = [p for p in phrases if p.text not in model.text(ids)]
        rest = [token for p in missing for token in p.token_ids] + [EOS]
        if len(ids) + len(rest) > max_length:
            return best
        total, last = score, ids[-1] if ids else 0
        for token in rest:
            total, last = total + model.log_probs[last, token], token
        best = total / (len(ids) + len(rest))
        row = model.log_probs[ids[-1] if ids else 0].copy()
        if row.argmax() == EOS:
            return best
        token = int(row.argmax())
        ids, score = [*ids, token], score + row[token]


def test_placing_phrases_well_beats_forcing_them_at_the_end():
    generator = np.random.default_rng(5)
    gains = []
    for seed in range(150):
        model = RandomModel(seed, 40)
        phrases = [phrase(*generator.integers(2, 40, 3).tolist(), surfaces=model.surfaces) for _ in range(2)]
        constrained = search(model, phrases, 4, 20)
        gains.append(constrained[0][0] - forced_at_the_end(model, phrases, 20))
    assert np.mean(gains) > 0.1
    assert np.mean(np.array(gains) > -1e-9) > 0.9


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
