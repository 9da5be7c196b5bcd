"""Rules of normalization, and word vectors."""

import random
import tempfile
from functools import cache

import pytest
import sentencepiece
import torch
from torch import nn

from helpers.refusals import refusal
from translane_export.train import normalization
from translane_export.train.word_vectors import load_word_vectors

rules = cache(normalization.rules)  # some need a second to build


@cache
def _normalizer(name: str) -> sentencepiece.SentencePieceNormalizer:
    sentencepiece.set_min_log_level(2)
    with tempfile.NamedTemporaryFile("w", encoding="ascii", suffix=".tsv") as table:
        table.write(normalization.rules_tsv(name))
        table.flush()
        return sentencepiece.SentencePieceNormalizer(rule_tsv=table.name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["nmt_nfkc", "nfkc_cf"])
def test_a_rule_read_back_from_its_compiled_form_normalizes_as_the_original(name):
    original = sentencepiece.SentencePieceNormalizer(rule_name=name)
    ours = _normalizer(name)
    draw = random.Random(1)
    keys = draw.sample(sorted(rules(name)), 20_000)  # compositions of several code points included
    others = [chr(code) for code in draw.sample(range(1, 0xD800), 20_000)]
    different = [text for text in keys + others if original.normalize(f"a{text}b") != ours.normalize(f"a{text}b")]
    assert different == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("traditional", "simplified"),
    [
        ("湯姆看來總是在工作。", "汤姆看来总是在工作。"),
        ("他們闖進了珠寶店！", "他们闯进了珠宝店！"),
        ("妳看著牠做甚麼？", "你看着它做什么？"),
        ("漢\uf900字", "汉岂字"),  # a compatibility ideograph whose canonical form is Traditional
    ],
)
def test_both_spellings_become_one(traditional, simplified):
    normalizer = _normalizer("nmt_nfkc_t2s")
    assert normalizer.normalize(traditional) == normalizer.normalize(simplified)


@pytest.mark.slow
def test_simplifying_twice_changes_nothing():
    normalizer = _normalizer("nmt_nfkc_t2s")
    ideographs = "".join(chr(code) for code in range(0x4E00, 0xA000))
    once = normalizer.normalize(ideographs).removeprefix("▁")
    assert normalizer.normalize(once).removeprefix("▁") == once


PIECES = ["<pad>", "<unk>", "▁cat", "cat", "▁", "猫", "dog"]


@pytest.fixture
def embedding():
    return nn.Embedding(len(PIECES), 3, padding_idx=0)


@pytest.fixture
def write(tmp_path):
    def write(content: str | bytes):
        path = tmp_path / "vectors.txt"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def test_matching_rows_are_set_and_the_others_left(embedding, write):
    before = embedding.weight.detach().clone()

    count = load_word_vectors(write("3 3\ncat 1 2 3\n猫 -0.5 1e-2 0 \nfish 7 8 9\n"), embedding, PIECES)

    assert count == 3
    assert embedding.weight[PIECES.index("cat")].tolist() == [1, 2, 3]
    assert embedding.weight[PIECES.index("▁cat")].tolist() == [1, 2, 3]  # the word without the mark
    assert embedding.weight[PIECES.index("猫")].tolist() == pytest.approx([-0.5, 0.01, 0])
    untouched = [0, 1, 4, 6]
    assert torch.equal(embedding.weight[untouched], before[untouched])


def test_a_marked_word_comes_before_the_bare_one_and_the_first_of_two_counts(embedding, write):
    content = "5 3\ncat 1 1 1\n▁cat 2 2 2\ndog 3 3 3\ndog 4 4 4\n<pad> 5 5 5\n"
    assert load_word_vectors(write(content), embedding, PIECES) == 3
    rows = {piece: embedding.weight[PIECES.index(piece)].tolist() for piece in ("cat", "▁cat", "dog", "<pad>")}
    assert rows == {"cat": [1, 1, 1], "▁cat": [2, 2, 2], "dog": [3, 3, 3], "<pad>": [0, 0, 0]}


def test_vectors_can_be_brought_to_a_deviation(embedding, write):
    load_word_vectors(write("2 3\ndog 10 20 30\n猫 -10 0 5\n"), embedding, PIECES, standard_deviation=0.5)
    dog, cat = embedding.weight[6].detach(), embedding.weight[5].detach()
    assert torch.cat((dog, cat)).std(correction=0).item() == pytest.approx(0.5)
    assert (dog[1] / dog[0]).item() == pytest.approx(2)


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        ("", 1, "not a word2vec header"),
        ("cat 1 2 3\n", 1, "not a word2vec header"),
        ("many 3\n", 1, "not a word2vec header"),
        ("1 4\ncat 1 2 3 4\n", 1, "vectors of size 4 do not fit an embedding of size 3"),
        ("2 3\ndog 1 2 3\ncat 1 2\n", 3, "2 numbers where the header promises 3"),
        ("1 3\ncat 1 2 3 4\n", 2, "4 numbers where the header promises 3"),
        ("2 3\n\ncat 1 2 3\n", 2, "0 numbers where the header promises 3"),
        ("1 3\nfish 1 two 3\n", 2, "could not convert string to float: 'two'"),
        ("1 3\ncat 1 nan 3\n", 2, "a number that is not finite"),
        (b"1 3\n\xff 1 2 3\n", 2, "not UTF-8"),
        ("1 3\ncat 1 2 3\ndog 1 2 3\n", 3, "the header promises only 1 words"),
        ("3 3\ncat 1 2 3\n", 2, "the file ends after 1 of 3 words"),
    ],
)
def test_a_bad_file_is_refused_by_name_and_line_and_changes_nothing(embedding, write, content, line, reason):
    before = embedding.weight.detach().clone()
    path = write(content)
    message = refusal(ValueError, load_word_vectors, path, embedding, PIECES)
    assert message.startswith(f"{path}:{line}: ")
    assert reason in message
    assert torch.equal(embedding.weight, before)
