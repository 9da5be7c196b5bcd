"""Callers' patterns of what is not translated."""

import pytest

from translane_server.core.budget import Budget, OverBudgetError
from translane_server.text.placeholders import PreservePatternError, PreservePatterns


def found(text, *patterns):
    return [text[part.start : part.end] for part in PreservePatterns(patterns).find(text)]


def test_what_patterns_match():
    assert found("ä🙂 foo, FOO\nfoobar", "(?i)foo", "o+b", "foobar") == ["foo", "FOO", "foobar"]
    assert found("aaa\nb", "a+|a", r"\s*b", r"\b") == ["aaa", "b"]
    assert not PreservePatterns([])


@pytest.mark.parametrize("pattern", ["(", "(?=x)", r"(a)\1", "x*", "", "a{1001}", "(?:x{1,90}){1,11}", "\\"])
def test_what_is_no_pattern_is_refused(pattern, capfd):
    with pytest.raises(PreservePatternError) as caught:
        PreservePatterns(["a", pattern])
    assert caught.value.number == 1
    assert capfd.readouterr() == ("", "")


@pytest.mark.timeout(20)
def test_a_hostile_pattern_takes_time_in_proportion():
    assert found("ab" * 50_000, "(a|b)*a(a|b){40}c", "(a*)*b{2}") == []


@pytest.mark.timeout(20)
def test_the_budget_ends_the_search():
    now = iter(range(10_000))
    budget = Budget(100, clock=lambda: float(next(now)))
    budget.start()
    with pytest.raises(OverBudgetError):
        PreservePatterns(["a"]).find("a" * 5000, budget)
