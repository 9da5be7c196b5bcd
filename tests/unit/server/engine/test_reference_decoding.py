"""Sentences of all kinds side by side in one running batch, against decoding as its definition says."""

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import sequences
from fakes.language_model import EOS, RandomModel
from helpers import reference_decoding
from translane_server.engine.options import DecodingOptions, RequiredPhrase, Sampling
from translane_server.engine.sequence import Sentence

MODEL = RandomModel()
ROWS = 12

lengths = st.integers(1, 10)
rules = {
    "min_length": st.sampled_from([0, 3]),
    "repetition_penalty": st.sampled_from([1.0, 1.0, 1.5, 0.7]),
    "no_repeat_ngram_size": st.sampled_from([0, 0, 1, 2, 3]),
    "suppressed_ids": st.sampled_from([(), (), (5, 6, 7), tuple(range(10, 25))]),
    "suppressed_phrases": st.sampled_from([(), (), (b"a", b"b c", b"ef")]),
}
greedy_options = st.builds(DecodingOptions, max_length=lengths, **rules)


@st.composite
def beam_options(draw):
    size = draw(st.integers(2, 5))
    patience = draw(st.sampled_from([1.0, 1.0, 2.0, 0.5]))
    most = min(size, max(1, round(patience * size)))
    return DecodingOptions(
        max_length=draw(lengths),
        beam_size=size,
        num_hypotheses=draw(st.integers(1, most)),
        length_penalty=draw(st.sampled_from([1.0, 0.0, 2.0, -0.5])),
        early_stopping=draw(st.booleans()),
        patience=patience,
        coverage_penalty=draw(st.sampled_from([0.0, 0.0, 0.5])),
        **{name: draw(values) for name, values in rules.items()},
    )


sources = st.lists(st.integers(2, 30), min_size=1, max_size=5).map(lambda ids: [*ids, EOS])
prefixes = st.sampled_from([(), (4,), (9, 3, 4)])


@st.composite
def sentences(draw):
    forced = draw(prefixes)
    counted, word_follows = draw(st.integers(0, len(forced))), draw(st.booleans())
    return Sentence(draw(sources), draw(st.one_of(greedy_options, beam_options())), forced, counted, word_follows)


samplings = st.builds(
    Sampling,
    seed=st.integers(0, 2**64 - 1),
    temperature=st.sampled_from([0.3, 1.0, 3.0]),
    top_k=st.sampled_from([0, 1, 3, 7]),
    top_p=st.sampled_from([1.0, 0.7]),
)
other_options = st.one_of(
    st.builds(DecodingOptions, max_length=lengths, num_hypotheses=st.integers(1, 3), sampling=samplings),
    st.builds(DecodingOptions, max_length=lengths, num_hypotheses=st.integers(2, 4), alternatives=st.just(True)),
)
others = st.tuples(sources, other_options, prefixes).map(lambda drawn: Sentence(*drawn))


def decode(batch, rows=ROWS, model=MODEL, seed=None, streamed=False):
    """What became of the sentences. The committed tokens of each are what its best hypothesis begins with."""
    decoded = sequences.decode(batch, model, rows, seed=seed, streamed=streamed)
    assert streamed or not decoded.committed
    for number, ids in decoded.committed.items():
        assert decoded.results[number][0].token_ids[: len(ids)] == ids
    return [decoded.results[number] for number in range(len(batch))], decoded


def expected(sentence, model=MODEL):
    if sentence.options.beam_size > 1:
        return reference_decoding.beam_search(model, sentence)
    return [reference_decoding.greedy(model, sentence)]


def check(hypotheses, references):
    assert [h.token_ids for h in hypotheses] == [r.token_ids for r in references]
    assert [h.score for h in hypotheses] == pytest.approx([r.score for r in references], abs=1e-4)
    assert [h.is_complete for h in hypotheses] == [r.ended for r in references]


@given(st.lists(sentences(), min_size=1, max_size=8), st.integers(0, 1000))
@settings(max_examples=300, deadline=None)
def test_every_sentence_is_decoded_as_if_it_were_alone(batch, seed):
    results, _ = decode(batch, seed=seed)
    for sentence, hypotheses in zip(batch, results, strict=True):
        check(hypotheses, expected(sentence))


class CoarseModel(RandomModel):
    """Logits that are often equal, or -inf but for one of them."""

    def __init__(self, *, grid, banned, **settings):
        super().__init__(**settings)
        self.grid, self.banned = grid, banned

    def logits(self, source, fed):
        logits = super().logits(source, fed)
        if self.grid:
            logits = np.round(logits / np.float32(self.grid)) * np.float32(self.grid)
        if self.banned:
            generator = np.random.default_rng([*source, *fed])
            banned = generator.random(len(logits)) < self.banned
            banned[generator.integers(len(logits))] = False
            logits = np.where(banned, np.float32(-np.inf), logits)
        return logits


coarse_models = st.builds(
    CoarseModel,
    grid=st.sampled_from([0, 0.5, 1.5]),
    banned=st.sampled_from([0, 0, 0.5, 0.9]),
    vocab_size=st.sampled_from([3, 5, 40]),
    seed=st.integers(0, 4),
    scale=st.sampled_from([0.5, 2.0]),
    eos_bias=st.sampled_from([-1.0, 1.0, 3.0]),
)
NO_RULES: dict[str, Any] = {name: getattr(DecodingOptions(1), name) for name in rules}


@given(st.lists(st.one_of(sentences(), others), min_size=1, max_size=6), st.integers(0, 1000), coarse_models)
@settings(max_examples=200)
def test_numbers_are_bit_identical_alone_and_in_company_whoever_listens(batch, seed, model):
    if model.vocab_size < MODEL.vocab_size:  # which rules and prefixes name tokens of
        batch = [Sentence(each.source_ids, replace(each.options, **NO_RULES)) for each in batch]
    unheard, heard = (
        sequences.decode(batch, model, ROWS, seed=seed, drops=0.05, streamed=streamed) for streamed in (False, True)
    )
    assert unheard.results == heard.results
    assert unheard.backend.moves == heard.backend.moves
    for number, hypotheses in unheard.results.items():
        assert decode([batch[number]], model=model)[0] == [hypotheses]


@given(st.lists(st.tuples(sentences(), st.booleans(), st.booleans()), min_size=1, max_size=6), st.integers(0, 1000))
@settings(max_examples=200)
def test_scores_and_alignments_are_told_where_they_are_wanted_and_change_nothing_else(batch, seed):
    asked = [
        each._replace(options=replace(each.options, scores=scores, alignment=alignment))
        for each, scores, alignment in batch
    ]
    found, decoded = decode(asked, seed=seed)
    expected, other = decode([each for each, *_ in batch], seed=seed)
    assert list(map(sorted, decoded.backend.moves)) == list(map(sorted, other.backend.moves)), "the same rows"
    for (_, scores, alignment), hypotheses, others in zip(batch, found, expected, strict=True):
        if alignment:
            assert all(len(each.alignment) == len(each.token_ids) for each in hypotheses)
        if not scores:
            others = [each._replace(score=None, token_log_probs=()) for each in others]
        assert [each._replace(alignment=()) for each in hypotheses] == list(others)


def test_beams_take_one_row_until_their_first_token_is_generated():
    options = DecodingOptions(max_length=6, min_length=5, beam_size=4)
    _, decoded = decode([Sentence([7, EOS], options, forced_ids=(3, 4))])
    assert decoded.backend.step_rows == [1, 1, 1, 4, 4, 4, 4, 4]


def test_a_hypothesis_that_goes_on_stays_in_its_row():
    generator = random.Random(0)
    batch = [
        Sentence([generator.randrange(2, 30), EOS], DecodingOptions(max_length=20, min_length=18, beam_size=4))
        for _ in range(3)
    ]
    _, decoded = decode(batch)
    # with every hypothesis in a row of its own, four beams in their steady state copy three rows at most
    assert max(map(len, decoded.backend.moves)) <= 3 * len(batch)


@pytest.mark.parametrize(("top_k", "model"), [(4, MODEL), (300, RandomModel(vocab_size=400, scale=0.5))])
def test_top_k_is_kept_among_few_candidates_and_among_many(top_k, model):
    best = set(np.argsort(-model.logits([7, EOS], [model.vocabulary.decoder_start]))[:top_k].tolist())
    options = [DecodingOptions(1, sampling=Sampling(seed, top_k=top_k, temperature=3.0)) for seed in range(200)]
    results, _ = decode([Sentence([7, EOS], option) for option in options], model=model)
    drawn = {(*hypothesis.token_ids, EOS)[0] for (hypothesis,) in results}
    assert drawn <= best
    assert len(drawn) >= min(top_k, 50)


@pytest.mark.parametrize(
    "options",
    [
        {"length_penalty": 3e38, "beam_size": 3},
        {"length_penalty": -3e38, "beam_size": 3},
        {"repetition_penalty": 1e-45, "sampling": Sampling(seed=1, top_p=0.9)},
        {"repetition_penalty": 3e38, "sampling": Sampling(seed=1, top_p=0.9)},
        {"repetition_penalty": 1e-45, "beam_size": 3},
        {"repetition_penalty": 3e38, "beam_size": 3},
        {"min_length": 3, "sampling": Sampling(seed=1, top_k=2**31 - 1)},
        {"sampling": Sampling(seed=2**64 - 1, temperature=1e-38, top_p=1e-38)},
        {"sampling": Sampling(seed=0, temperature=3e38)},
        {"no_repeat_ngram_size": 2**31 - 1, "beam_size": 12, "num_hypotheses": 12, "patience": 1e30},
        {"coverage_penalty": 3e38, "beam_size": 2},
        {"coverage_penalty": -3e38, "beam_size": 2},
    ],
)
def test_extreme_values_give_a_translation(options):
    for source in range(2, 12):
        sentence = Sentence([source, 3, EOS], DecodingOptions(max_length=8, **options), (4, 4, 9))
        (hypotheses,), _ = decode([sentence])
        for hypothesis in hypotheses:
            assert hypothesis.token_ids[:3] == (4, 4, 9)
            assert len(hypothesis.token_ids) <= 11


def test_a_sentence_ends_where_everything_is_banned():
    everything = tuple(range(MODEL.vocab_size))
    for options in (
        DecodingOptions(max_length=5, suppressed_ids=everything),
        DecodingOptions(max_length=5, suppressed_ids=everything, beam_size=3),
        DecodingOptions(max_length=5, suppressed_ids=everything, sampling=Sampling(seed=1)),
        DecodingOptions(max_length=5, suppressed_ids=everything, sampling=Sampling(seed=1, top_k=3)),
        DecodingOptions(max_length=5, suppressed_ids=everything, num_hypotheses=3, alternatives=True),
    ):
        ((hypothesis, *_),), _ = decode([Sentence([7, EOS], options, (4,))])
        assert hypothesis.token_ids == (4,)
        assert hypothesis.is_complete


@given(st.integers(0, 1000))
@settings(max_examples=30)
def test_each_token_is_aligned_with_the_source_token_its_step_attends_to(seed):
    """Whatever rows the hypotheses went through, in company of sentences that come, go and take more rows."""
    kinds: list[dict[str, Any]] = [
        {},
        {"beam_size": 4, "num_hypotheses": 3},
        {"alternatives": True, "num_hypotheses": 3},
        {"sampling": Sampling(seed=1), "num_hypotheses": 2},
        {"alignment": False},
    ]
    batch = [
        Sentence(
            [7 + number, 8, 9, 10, EOS],
            DecodingOptions(**{"max_length": 1 + number % 9, "alignment": True, **kinds[number % len(kinds)]}),
            (4, 5)[: number % 3],
        )
        for number in range(20)
    ]
    results, _ = decode(batch, seed=seed)
    for sentence, hypotheses in zip(batch, results, strict=True):
        for hypothesis in hypotheses:
            if not sentence.options.alignment:
                assert hypothesis.alignment == ()
                continue
            history = [MODEL.vocabulary.decoder_start]
            for token, aligned in zip(hypothesis.token_ids, hypothesis.alignment, strict=True):
                attention = MODEL.attention(sentence.source_ids, history)[:-1]
                assert aligned.source_token == attention.argmax()
                assert aligned.weight == pytest.approx(attention.max())
                history.append(token)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_tokens_are_committed_long_before_the_end_with_their_alignment(beam_size):
    options = DecodingOptions(max_length=12, min_length=8, beam_size=beam_size, alignment=True)
    results, decoded = decode([Sentence([source, 8, 9, EOS], options) for source in range(2, 30)], streamed=True)
    assert len(decoded.committed) > 10
    for number, aligned in decoded.aligned.items():
        assert len(aligned) == len(decoded.committed[number])
        assert results[number][0].alignment[: len(aligned)] == aligned


def text_of(token_ids):
    return b"".join(MODEL.vocabulary.surfaces[token] for token in token_ids).removeprefix(b" ")


phrases = st.lists(st.integers(2, 39), min_size=1, max_size=3).map(lambda ids: RequiredPhrase(text_of(ids), tuple(ids)))


@given(st.lists(phrases, min_size=1, max_size=3), st.integers(2, 6), st.integers(1, 16), st.integers(2, 40), prefixes)
@settings(max_examples=300)
def test_required_phrases_occur_whenever_the_length_allows(required, beam_size, max_length, source, forced):
    """If it does not allow all of them, one of those that it allows occurs."""
    options = DecodingOptions(max_length, beam_size=beam_size)
    beside = Sentence([9, EOS], DecodingOptions(max_length=8, beam_size=4, num_hypotheses=4))
    (found, other), _ = decode([Sentence([source, EOS], options, forced, required_phrases=tuple(required)), beside])
    there = [phrase.text in text_of(found[0].token_ids) for phrase in required]
    lengths = [len(phrase.token_ids) for phrase in required]
    assert any(there) or min(lengths) > max_length
    assert all(there) or sum(lengths) > max_length
    check(other, expected(beside))


@given(phrases, beam_options(), st.integers(2, 40))
@settings(max_examples=100)
def test_with_the_phrases_there_it_is_ordinary_beam_search(phrase, options, source):
    sentence = Sentence([source, EOS], replace(options, **NO_RULES), phrase.token_ids)
    (found,), _ = decode([sentence._replace(required_phrases=(phrase,))])
    check(found, expected(sentence))


def forced_at_the_end(source, required, max_length):
    """The score of the baseline: greedy search, and then phrases that are not there, one after the other."""
    best, score = -np.inf, 0.0
    ids: tuple[int, ...] = ()
    while True:
        missing = [phrase for phrase in required if phrase.text not in text_of(ids)]
        rest = [*(token for phrase in missing for token in phrase.token_ids), EOS]
        if len(ids) + len(rest) > max_length:
            return best
        fed, total = [MODEL.vocabulary.decoder_start, *ids], score
        for token in rest:
            total += MODEL.log_probs(source, fed)[token]
            fed.append(token)
        best = total / (len(fed) - 1)
        log_probs = MODEL.log_probs(source, [MODEL.vocabulary.decoder_start, *ids])
        token = int(log_probs.argmax())
        if token == EOS:
            return best
        ids, score = (*ids, token), score + log_probs[token]


def test_placing_phrases_well_beats_forcing_them_at_the_end():
    pick, gains = random.Random(5), []
    for number in range(150):
        source = [2 + number % 38, 2 + number // 38, EOS]
        lists = [[pick.randrange(2, 40) for _ in range(3)] for _ in range(2)]
        required = tuple(RequiredPhrase(text_of(ids), tuple(ids)) for ids in lists)
        options = DecodingOptions(max_length=20, beam_size=4)
        (((best, *_),), _) = decode([Sentence(source, options, required_phrases=required)])
        gains.append(best.score - forced_at_the_end(source, required, 20))
    assert np.mean(gains) > 0.1
    assert np.mean(np.array(gains) > -1e-4) > 0.9
