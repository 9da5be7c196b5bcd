"""What training reads: pairs, batches, segmentations and vocabularies."""

import gzip
import math
import random
from collections import Counter
from pathlib import Path

import opencc
import pytest
import torch

from helpers.tiny_corpus import write_pairs
from translane_export.train.batches import EncodedPair, collate, plan_batches
from translane_export.train.data import Columns, read_parallel_text
from translane_export.train.errors import DataError
from translane_export.train.settings import VocabularyKind
from translane_export.train.vocabulary import SegmentationSampler, train_vocabulary

BAD = "你好\tHello\tx\n只有一列\n \tempty source\tx\n空的\t\tx\n再见\tBye\n".encode() + b"\xff\xfe\tbroken\n"


def test_plain_and_gzipped_files_read_the_same(tmp_path):
    text = " 你好 \tHello\u2028there\r\n"
    (tmp_path / "a.tsv").write_text(text, encoding="utf-8", newline="")
    with gzip.open(tmp_path / "a.tsv.gz", "wt", encoding="utf-8", newline="") as file:
        file.write(text)
    plain = read_parallel_text(tmp_path / "a.tsv", Columns(), "refuse")
    zipped = read_parallel_text(tmp_path / "a.tsv.gz", Columns(), "refuse")
    assert [(pair.source, pair.target) for pair in plain.pairs] == [("你好", "Hello\u2028there")]
    assert (plain.pairs, plain.digest) == (zipped.pairs, zipped.digest)


def test_columns_are_chosen(tmp_path):
    (tmp_path / "a.tsv").write_text("1\tHello\t你好\n", encoding="utf-8")
    text = read_parallel_text(tmp_path / "a.tsv", Columns(source=2, target=1), "refuse")
    assert (text.pairs[0].source, text.pairs[0].target) == ("你好", "Hello")


def test_bad_lines_are_skipped_counted_and_listed(tmp_path):
    path = tmp_path / "bad.tsv"
    path.write_bytes(BAD)
    text = read_parallel_text(path, Columns(), "skip")
    assert [pair.target for pair in text.pairs] == ["Hello", "Bye"]
    assert text.skipped == 4
    assert text.problems == (
        f"{path}:2: 1 column, at least 2 needed",
        f"{path}:3: the source side (column 0) is empty",
        f"{path}:4: the target side (column 1) is empty",
        f"{path}:6: invalid UTF-8 at byte 1",
    )
    assert "2 pairs, 4 bad lines skipped" in text.summary()


def test_unreadable_files_are_named(tmp_path):
    with pytest.raises(DataError, match=r"none\.tsv: the file is missing"):
        read_parallel_text(tmp_path / "none.tsv", Columns(), "skip")
    (tmp_path / "fake.gz").write_text("no gzip")
    with pytest.raises(DataError, match=r"fake\.gz: cannot be read"):
        read_parallel_text(tmp_path / "fake.gz", Columns(), "skip")
    whole = gzip.compress(b"a\tb\n" * 1000)
    (tmp_path / "cut.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"cut\.gz: cannot be read"):
        read_parallel_text(tmp_path / "cut.gz", Columns(), "skip")
    (tmp_path / "empty.tsv").write_text("")
    with pytest.raises(DataError, match=r"empty\.tsv: no usable sentence pair$"):
        read_parallel_text(tmp_path / "empty.tsv", Columns(), "skip")


def _pairs(count: int) -> list[EncodedPair]:
    draw = random.Random(1)
    return [EncodedPair([9] * draw.randint(1, 30), [9] * draw.randint(1, 30)) for _ in range(count)]


@pytest.mark.parametrize(("mixed", "size"), [(False, 500), (True, 2000)])
def test_each_pair_comes_once_in_batches_of_similar_or_of_all_lengths(mixed, size):
    """A batch norm learns the length of a translation from batches that are sorted by it."""
    pairs = _pairs(5000)
    plan = plan_batches(pairs, max_tokens=size, seed=1, epoch=0, mixed=mixed)
    assert sorted(row for rows in plan for row in rows) == list(range(5000))
    assert all(len(rows) * max(pairs[row].width for row in rows) <= size for rows in plan)
    lengths = [[len(pairs[row].target) for row in rows] for rows in plan]
    if mixed:
        means = [sum(each) / len(each) for each in lengths]
        assert 10 < min(means) < max(means) < 21
    else:
        assert sum(max(each) - min(each) for each in lengths) / len(plan) < 1


def test_a_pair_longer_than_a_batch_gets_its_own():
    pairs = [EncodedPair([9], [9]), EncodedPair([9] * 50, [9]), EncodedPair([9], [9, 9])]
    plan = plan_batches(pairs, max_tokens=10, seed=1, epoch=0)
    assert [1] in plan


def test_the_order_follows_seed_and_epoch():
    pairs = _pairs(200)
    first = plan_batches(pairs, 100, seed=1, epoch=0)
    assert plan_batches(pairs, 100, seed=1, epoch=0) == first
    assert plan_batches(pairs, 100, seed=1, epoch=1) != first
    assert plan_batches(pairs, 100, seed=2, epoch=0) != first


def test_collate_pads_and_marks():
    batch = collate([EncodedPair([7, 8], [5]), EncodedPair([9], [4, 6])])
    assert batch.source_ids.tolist() == [[7, 8, 3], [9, 3, 0]]
    assert batch.source_lengths.tolist() == [3, 2]
    assert batch.target_input.tolist() == [[2, 5, 0], [2, 4, 6]]
    assert batch.target_output.tolist() == [[5, 3, 0], [4, 6, 3]]
    assert EncodedPair([9], [4, 6]).target_tokens == 3
    assert batch.source_ids.dtype == torch.int64


TEXTS = ["banana bandana", "a band", "", "an abandoned banana"]


@pytest.fixture
def vocabulary(tmp_path):
    return train_vocabulary(TEXTS * 20, tmp_path / "a.spm", kind="unigram", size=16)


def test_a_draw_is_a_segmentation_and_the_seed_decides_which(vocabulary):
    sampler = SegmentationSampler(vocabulary, TEXTS, alpha=0.1, nbest=8)
    first = sampler.draw((1, 0))
    assert vocabulary.decode(first) == TEXTS
    assert sampler.draw((1, 0)) == first
    assert len({str(sampler.draw((1, epoch))) for epoch in range(20)}) > 10


def test_draws_follow_the_smoothed_distribution(vocabulary):
    segmentations = vocabulary.best_segmentations(TEXTS[0], 3)
    log_probabilities = [segmentation.log_probability for segmentation in segmentations]
    assert log_probabilities == sorted(log_probabilities, reverse=True)
    assert [segmentations[0].ids] == vocabulary.encode(TEXTS[:1])
    weights = [math.exp(0.5 * segmentation.log_probability) for segmentation in segmentations]
    drawn = SegmentationSampler(vocabulary, TEXTS[:1] * 4000, alpha=0.5, nbest=3).draw((1,))
    counts = Counter(map(tuple, drawn))
    for segmentation, weight in zip(segmentations, weights, strict=True):
        assert counts[tuple(segmentation.ids)] / 4000 == pytest.approx(weight / sum(weights), abs=0.03)


SIZES: dict[VocabularyKind, int] = {"unigram": 30, "bpe": 60, "char": 60, "word": 60}
SHARED = Path(__file__).parents[4] / "shared" / "data" / "tatoeba-zh-en"


@pytest.fixture
def sentences(tmp_path):
    path = write_pairs(tmp_path / "text.tsv", 200, 1)
    return [pair.target for pair in read_parallel_text(path, Columns(), "refuse").pairs]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["unigram", "bpe", "char", "word"])
def test_each_kind_encodes_and_decodes(tmp_path, sentences, kind):
    vocabulary = train_vocabulary(sentences, tmp_path / "a.spm", kind=kind, size=SIZES[kind])
    assert vocabulary.pieces()[:4] == ["<pad>", "<unk>", "<s>", "</s>"]
    assert len(vocabulary) <= 60
    assert vocabulary.decode(vocabulary.encode(sentences)) == sentences


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="the Tatoeba data is not beside the checkout")
def test_simplified_and_traditional_get_the_same_ids(tmp_path):
    text = read_parallel_text(SHARED / "train.tsv.gz", Columns(), "refuse")
    sources, path = (pair.source for pair in text.pairs), tmp_path / "a.spm"
    vocabulary = train_vocabulary(sources, path, kind="unigram", size=4000, normalization="nmt_nfkc_t2s")
    valid = [pair.source for pair in read_parallel_text(SHARED / "valid.tsv.gz", Columns(), "refuse").pairs]
    to_simplified, to_traditional = opencc.OpenCC("t2s"), opencc.OpenCC("s2t")
    simplified = [to_simplified.convert(sentence) for sentence in valid]
    traditional = [to_traditional.convert(sentence) for sentence in simplified]
    assert sum(a != b for a, b in zip(simplified, traditional, strict=True)) > len(valid) / 2
    expected = vocabulary.encode(valid)
    assert _different(vocabulary.encode(simplified), expected) == 0
    # s2t picks words, too (具 or 俱, 象 or 像), which no change of script undoes.
    assert _different(vocabulary.encode(traditional), expected) < 0.005 * len(valid)


def _different(ours: list[list[int]], theirs: list[list[int]]) -> int:
    return sum(a != b for a, b in zip(ours, theirs, strict=True))
