"""docs/real-texts.md shows what the server answers, and what must survive is in every answer."""

import re

import pytest

from benchmarks.runs import real_text_examples
from benchmarks.runs.real_text_examples import EXAMPLES, PAGE

pytestmark = pytest.mark.slow

# What each example must not lose: placeholders, addresses, emoji, tags and code.
_SURVIVES = re.compile(
    r"\{\w+\}|%\d\$s|https?://[\w./?=]+\w|[\w.]+@[\w.]+\w|\U0001f468\u200d\S*\U0001f467|</?\w[^<>]*>|`make`"
)


def test_the_page_is_what_the_server_answers():
    page = PAGE.read_text(encoding="utf-8")
    assert real_text_examples.page() == page
    answers = re.findall(r"^After:\n\n(`{3,})\w+\n(.*?)\n\1$", page, re.MULTILINE | re.DOTALL)
    assert len(answers) == len(EXAMPLES)
    for example, (_, answer) in zip(EXAMPLES, answers, strict=True):
        for part in _SURVIVES.findall(example.text):
            assert answer.count(part) == example.text.count(part), example.title
