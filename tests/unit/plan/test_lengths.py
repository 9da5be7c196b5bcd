"""Lengths of sentences: files, means, and chance."""

import itertools
import re
import statistics

import pytest

from translane_plan.errors import PlanError
from translane_plan.lengths import drawn, read_lengths, scaled_to
from translane_plan.profile import Length


def test_a_file_has_two_numbers_on_each_line(tmp_path):
    path = tmp_path / "lengths.txt"
    path.write_text("12 15\n3\t4\n7,9\n")
    assert read_lengths(path) == (Length(12, 15), Length(3, 4), Length(7, 9))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "it is empty"),
        ("12 15\n12\n", ":2: two numbers are needed, source tokens and target tokens, not '12'"),
        ("1 2 3\n", ":1: two numbers are needed"),
        ("-1 2\n", ":1: two numbers are needed"),
        ("0 2\n", ":1: a sentence has 1 to 65536 tokens, not 0 and 2"),
        ("5 70000\n", ":1: a sentence has 1 to 65536 tokens, not 5 and 70000"),
        ("1 2\n" * 100_001, "it has 100,001 lines, and at most 100,000 are read"),
    ],
)
def test_a_wrong_file_is_refused_in_a_sentence(tmp_path, content, problem):
    path = tmp_path / "lengths.txt"
    path.write_text(content)
    with pytest.raises(PlanError, match=re.escape(problem)) as caught:
        read_lengths(path)
    assert str(caught.value).startswith(f"--lengths: {path}")
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(PlanError, match=r"--lengths: .*none\.txt: No such file"):
        read_lengths(tmp_path / "none.txt")


def test_lengths_are_scaled_to_a_mean():
    lengths = (Length(5, 10), Length(15, 20))
    scaled = scaled_to(lengths, 20)
    assert scaled == (Length(10, 20), Length(30, 40))
    assert statistics.fmean(length.source for length in scaled) == 20
    assert min(scaled_to(lengths, 0.01)) == (1, 1)


def test_the_same_seed_draws_the_same_lengths():
    lengths = [Length(number, number) for number in range(1, 50)]
    first, again, other = (list(itertools.islice(drawn(lengths, seed), 100)) for seed in (1, 1, 2))
    assert first == again != other
    assert set(first) <= set(lengths)
