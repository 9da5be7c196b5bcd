from __future__ import annotations

import pytest
import torch
from torch import nn

from translane_export.train.word_vectors import load_word_vectors

PIECES = ["<pad>", "<unk>", "▁cat", "cat", "▁", "猫", "dog"]


@pytest.fixture
def embedding() -> nn.Embedding:
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


def test_a_marked_word_comes_before_the_bare_one(embedding, write):
    assert load_word_vectors(write("2 3\ncat 1 1 1\n▁cat 2 2 2\n"), embedding, PIECES) == 2
    assert embedding.weight[PIECES.index("▁cat")].tolist() == [2, 2, 2]
    assert embedding.weight[PIECES.index("cat")].tolist() == [1, 1, 1]


def test_the_first_of_two_vectors_counts_and_padding_stays(embedding, write):
    assert load_word_vectors(write("3 3\ndog 1 1 1\ndog 2 2 2\n<pad> 5 5 5\n"), embedding, PIECES) == 1
    assert embedding.weight[PIECES.index("dog")].tolist() == [1, 1, 1]
    assert embedding.weight[0].tolist() == [0, 0, 0]


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
    with pytest.raises(ValueError) as error:
        load_word_vectors(path, embedding, PIECES)
    assert str(error.value).startswith(f"{path}:{line}: ")
    assert reason in str(error.value)
    assert torch.equal(embedding.weight, before)


def test_more_pieces_than_rows_are_refused(embedding, write):
    with pytest.raises(ValueError, match="8 pieces do not fit an embedding of 7 rows"):
        load_word_vectors(write("0 3\n"), embedding, [*PIECES, "extra"])
