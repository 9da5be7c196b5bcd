"""What is decoded: the same sentences in the same order for every engine, and lengths that a batch shares."""

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.models.workload import (
    Pair,
    batch_lengths,
    make_load,
    random_ids,
    random_sources,
    read_pairs,
    read_texts,
)
from benchmarks.places import DEMO
from translane_server.bundle import load_bundle

LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=40)


def pairs_of(lengths):
    return [Pair(tuple(range(length)), 2 * length) for length in lengths]


@given(LENGTHS, st.integers(1, 50))
def test_the_sentences_of_a_batch_share_one_of_their_lengths(lengths, batch):
    shared = batch_lengths(lengths, batch)
    assert len(shared) == len(lengths)
    for first in range(0, len(lengths), batch):
        (length,) = set(shared[first : first + batch])
        assert length in lengths[first : first + batch]


def test_a_batch_has_its_median_length():
    assert batch_lengths([1, 2, 9, 5, 7], 3) == [2, 2, 2, 5, 5]


@given(LENGTHS, st.integers(1, 50), st.integers(1, 100))
def test_a_load_has_its_sentences_longest_first(lengths, batch, count):
    load = make_load(pairs_of(lengths), count, batch, 4, fixed=True)
    assert [len(source) for source in load.sources] == sorted(map(len, load.sources), reverse=True)
    assert load.lengths is not None
    assert len(load.sources) == len(load.lengths) == count
    assert load.max_length == max(load.lengths)
    assert load.beam_size == 4


def test_the_model_ends_the_sentences_of_a_load_that_is_not_fixed():
    assert make_load(pairs_of([3, 4]), 2, 1, 1, fixed=False).lengths is None


def test_a_load_takes_every_sentence_before_it_takes_one_again():
    load = make_load(pairs_of(range(1, 11)), 20, 4, 1, fixed=False)
    assert [len(source) for source in load.sources] == [n for n in range(10, 0, -1) for _ in range(2)]


def test_random_ids_keep_the_lengths_and_the_end():
    drawn = random_ids([Pair((5, 6, 7, 3), 9), Pair((3,), 1)], range(10, 20), end=0)
    assert [(len(pair.source), pair.source[-1], pair.reference_length) for pair in drawn] == [(4, 0, 9), (1, 0, 1)]
    assert set(drawn[0].source[:-1]) <= set(range(10, 20))


def test_pairs_are_read_in_the_pieces_of_the_bundle(tmp_path):
    file = tmp_path / "pairs.tsv"
    file.write_text("你好。\tHello.\tsomebody\n我是学生。\tI am a student.\n", encoding="utf-8")
    bundle = load_bundle(DEMO)
    first, second = read_pairs(file, bundle)
    assert first.source[-1] == second.source[-1] == bundle.manifest.special_ids.eos
    assert 1 < first.reference_length < second.reference_length


def test_random_sources_have_the_lengths_asked_for_and_are_the_same_each_time():
    bundle = load_bundle(DEMO)
    found = random_sources(bundle, [3, 1, 2])
    assert [len(source) for source in found] == [3, 1, 2]
    assert found == random_sources(bundle, [3, 1, 2]) != random_sources(bundle, [3, 1, 2], seed=1)
    assert all(4 <= token < bundle.manifest.architecture.source_vocab_size for source in found for token in source)


@pytest.mark.parametrize("name", ["texts.txt", "texts.tsv.gz"])
def test_texts_end_at_the_first_tab(name, tmp_path):
    file = tmp_path / name
    content = "你好。\tHello.\n我\n".encode()
    file.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert read_texts(file) == ["你好。", "我"]
