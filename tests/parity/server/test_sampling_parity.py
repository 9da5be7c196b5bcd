"""Samples are distributed as they should be: through the whole engine, against the model's softmax and against what
Hugging Face's processors and warpers leave of it. The seeds are always the same, so no run is unlucky."""

from collections import Counter, defaultdict

import pytest
import torch

from helpers.generate_parity import random_subject
from translane_server.engine.options import DecodingOptions, Sampling
from translane_server.engine.sequence import Sentence

pytestmark = pytest.mark.slow  # thousands of samples

SEEDS = 3000
FEWEST = 5  # expected samples of a bin; rarer outcomes share one
SIGNIFICANT = 1e-4  # a right sampler's seeds come out less likely than this one time in ten thousand


@pytest.fixture(scope="module")
def subject():
    with random_subject("post-norm") as subject:
        yield subject


def p_value(counts, probabilities):
    """Pearson's chi-square test of how often each outcome came against how probable it is.

    An outcome of no probability must not come at all.
    """
    total = sum(counts.values())
    assert not [outcome for outcome in counts if not probabilities.get(outcome)], "an impossible outcome came"
    bins, rest, expected_rest = [], 0, 0.0
    for outcome, probability in probabilities.items():
        if probability * total < FEWEST:
            rest += counts[outcome]
            expected_rest += probability * total
        else:
            bins.append((counts[outcome], probability * total))
    if expected_rest >= FEWEST:
        bins.append((rest, expected_rest))
    if len(bins) == 1:
        return 1.0  # what is certain came every time
    statistic = sum((found - expected) ** 2 / expected for found, expected in bins)
    freedom = torch.tensor((len(bins) - 1) / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(freedom, torch.tensor(statistic / 2, dtype=torch.float64)))


def distribution(oracle, sentence, options=None):
    """Probability of each next token of `sentence` after Hugging Face's processors and warpers."""
    fed = [oracle.decoder_start, *sentence.forced_ids]
    logits = oracle.logits(sentence.source_ids, fed)[-1:]
    processors = oracle.processors(options or sentence.options, 1 + len(sentence.forced_ids))
    return dict(enumerate(torch.softmax(processors(torch.tensor([fed]), logits).double(), dim=1)[0].tolist()))


def options(seed, max_length=1, temperature=1.0, top_k=0, top_p=1.0, **others):
    sampling = Sampling(seed=seed, temperature=temperature, top_k=top_k, top_p=top_p)
    return DecodingOptions(max_length=max_length, sampling=sampling, **others)


def samples(subject, source, forced=(), seeds=range(SEEDS), **chosen):
    """The generated tokens of each seed's hypotheses, the end of the sentence included."""
    sentences = [Sentence(source, options(seed, **chosen), forced) for seed in seeds]
    return [
        [
            hypothesis.token_ids[len(forced) :] + (subject.oracle.eos,) * hypothesis.is_complete
            for hypothesis in hypotheses
        ]
        for hypotheses in subject.driver.together(sentences)
    ]


WARPERS = [
    {},
    {"temperature": 0.5},
    {"temperature": 2.0},
    {"top_k": 5},
    {"top_k": 1},
    {"top_p": 0.8},
    {"top_p": 0.3, "temperature": 1.5},
    {"top_k": 12, "top_p": 0.7, "temperature": 1.3},
    {"repetition_penalty": 1.8},
    {"repetition_penalty": 0.8, "top_k": 6},
    {"no_repeat_ngram_size": 1, "top_p": 0.9},
    {"min_length": 1, "suppressed_ids": (5, 6, 7, 8, 9)},
]


@pytest.mark.parametrize("chosen", WARPERS, ids=str)
def test_the_first_token_is_distributed_as_the_warped_softmax(subject, chosen):
    source, forced = subject.sources[0], (11, 6, 11)
    expected = distribution(subject.oracle, Sentence(source, options(0, **chosen), forced))
    first = WARPERS.index(chosen) * SEEDS  # seeds of its own for each case
    seeds = range(first, first + SEEDS)
    found = Counter(tokens[0] for [tokens] in samples(subject, source, forced, seeds=seeds, **chosen))
    assert sum(found.values()) == SEEDS
    assert p_value(found, expected) > SIGNIFICANT


def test_the_test_tells_a_distribution_from_its_neighbour(subject):
    source, forced = subject.sources[0], (11, 6, 11)
    found = Counter(tokens[0] for [tokens] in samples(subject, source, forced))
    neighbour = distribution(subject.oracle, Sentence(source, options(0, temperature=1.3), forced))
    assert p_value(found, neighbour) < SIGNIFICANT / 1000


def test_the_second_token_is_drawn_anew_from_the_distribution_after_the_first(subject):
    source = subject.sources[1]
    chosen = {"max_length": 2, "top_k": 4}
    first = distribution(subject.oracle, Sentence(source, options(0, **chosen)))
    expected = {}
    for token, probability in first.items():
        if not probability:
            continue
        if token == subject.oracle.eos:
            expected[token,] = probability
            continue
        second = distribution(subject.oracle, Sentence(source, options(0, **chosen), (token,)))
        expected.update({(token, after): probability * share for after, share in second.items()})
    found = Counter(tokens for [tokens] in samples(subject, source, **chosen))
    assert p_value(found, expected) > SIGNIFICANT


@pytest.mark.parametrize("spread", [1, 2**32, 2**63])
def test_seeds_that_follow_each_other_draw_independently(subject, spread):
    source = subject.sources[2]
    chosen = {"top_k": 4}
    seeds = [(seed * spread + seed // 2) % 2**64 for seed in range(SEEDS)]
    drawn = [tokens[0] for [tokens] in samples(subject, source, seeds=seeds, **chosen)]
    single = distribution(subject.oracle, Sentence(source, options(0, **chosen)))
    pairs = {(a, b): single[a] * single[b] for a in single for b in single}
    assert p_value(Counter(zip(drawn[::2], drawn[1::2], strict=True)), pairs) > SIGNIFICANT


def test_the_hypotheses_of_a_seed_are_drawn_independently(subject):
    source = subject.sources[2]
    chosen = {"top_k": 4, "num_hypotheses": 2}
    single = distribution(subject.oracle, Sentence(source, options(0, **chosen)))
    # hypotheses come best first, so a pair is known but for its order
    pairs: defaultdict[tuple[int, ...], float] = defaultdict(float)
    for a in single:
        for b in single:
            pairs[tuple(sorted((a, b)))] += single[a] * single[b]
    drawn = [tuple(sorted(tokens[0] for tokens in pair)) for pair in samples(subject, source, **chosen)]
    assert p_value(Counter(drawn), pairs) > SIGNIFICANT
