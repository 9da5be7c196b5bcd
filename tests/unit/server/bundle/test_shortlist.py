"""A shortlist gives the tokens that its rules say, and survives its file."""

import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from translane_server.bundle.bundle import Bundle
from translane_server.bundle.shortlist import (
    LONGEST_NGRAM,
    Shortlist,
    load_shortlist,
    longest_ngram,
    write_shortlist,
)
from translane_server.core.errors import BundleError

SOURCES, TARGETS = 20, 50


def load(path):
    sizes = SimpleNamespace(source_vocab_size=SOURCES, target_vocab_size=TARGETS)
    manifest: Any = SimpleNamespace(shortlist=path.name, architecture=sizes)
    return load_shortlist(Bundle(path.parent, manifest))


def naive_tokens(rules, always, source_ids, more):
    found = {*always, *more}
    for ngram, tokens in rules.items():
        places = range(len(source_ids) - len(ngram) + 1)
        if any(tuple(source_ids[place : place + len(ngram)]) == ngram for place in places):
            found |= set(tokens)
    return sorted(found)


def random_rules(draw, count=60):
    return {
        tuple(draw.choices(range(SOURCES), k=draw.randint(1, 3))): draw.choices(range(TARGETS), k=draw.randint(1, 4))
        for _ in range(count)
    }


@pytest.mark.parametrize("seed", range(5))
def test_tokens_are_those_of_all_ngrams(seed, tmp_path):
    draw = random.Random(seed)
    rules, always = random_rules(draw), draw.sample(range(TARGETS), 5)
    shortlist = Shortlist.of(rules, always, SOURCES)
    write_shortlist(shortlist, tmp_path / "shortlist.bin")
    again = load(tmp_path / "shortlist.bin")
    for length in (1, 2, 3, 10, 40):
        source_ids = draw.choices(range(SOURCES), k=length)
        more = draw.sample(range(TARGETS), 2)
        expected = naive_tokens(rules, always, source_ids, more)
        assert shortlist.tokens(source_ids, more).tolist() == expected
        assert again.tokens(source_ids, more).tolist() == expected


def test_without_rules():
    shortlist = Shortlist.of({}, [7, 3, 3], SOURCES)
    assert shortlist.tokens([1, 2, 3]).tolist() == [3, 7]


def test_ngrams_are_numbers_of_63_bits():
    assert longest_ngram(65_001) == 3
    assert longest_ngram(10_000_000) == 2
    assert longest_ngram(20) == LONGEST_NGRAM
    last = (65_000,) * 3
    shortlist = Shortlist.of({last: [4]}, [0], 65_001)
    assert shortlist.order == 3
    assert shortlist.tokens([1, *last]).tolist() == [0, 4]
    assert shortlist.tokens([65_000] * 2).tolist() == [0]
    with pytest.raises(ValueError, match="has 4 tokens, and at most 3 are possible"):
        Shortlist.of({(1,) * 4: [2]}, [0], 65_001)


def content(always=(1,), keys=(1, 2), starts=(0, 1, 2), targets=(3, 4), counts=None):
    counts = counts or (len(always), len(keys), len(starts), len(targets))
    return b"TLSHORT1" + np.array([*counts, *always, *keys, *starts, *targets], "<i8").tobytes()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (b"", "does not start"),
        (b"TLSHORT1", "does not start"),
        (content().replace(b"1", b"2", 1), "does not start"),
        (content()[:-1], "does not start"),
        (content()[:-8], "another size"),
        (content() + b"x", "does not start"),
        (content() + bytes(8), "another size"),
        (content(counts=(1, 2, 3, 1 << 62)), "another size"),
        (content(counts=(1, -2, 3, 6)), "another size"),
        (content(starts=(0, 1)), "do not match"),
        (content(starts=(0, 3, 2)), "do not match"),
        (content(starts=(1, 1, 2)), "do not match"),
        (content(keys=(2, 2)), "in order"),
        (content(keys=(0, 2)), "in order"),
        (content(always=(5, 1)), "in order"),
        (content(always=()), "always allowed"),
        (content(always=(-1,)), "none of 50"),
        (content(targets=(3, 50)), "none of 50"),
    ],
)
def test_wrong_files_are_refused(tmp_path, wrong, message):
    (tmp_path / "wrong.bin").write_bytes(wrong)
    with pytest.raises(BundleError, match=f"wrong.bin is no shortlist of this model: .*{message}"):
        load(tmp_path / "wrong.bin")


def test_a_right_file(tmp_path):
    (tmp_path / "right.bin").write_bytes(content())
    assert load(tmp_path / "right.bin").tokens([0, 1]).tolist() == [1, 3, 4]
