"""The built-in sentences."""

from __future__ import annotations

from itertools import takewhile

from translane_client.bench.sentences import BUILT_IN, built_in


def test_there_are_sentences_of_our_own():
    assert built_in(["xx", "zh-Hant"]) == BUILT_IN["zh"]
    assert built_in(["xx"]) == ()
    for sentences in BUILT_IN.values():
        assert len(set(sentences)) == len(sentences)
        assert list(takewhile(str.strip, sentences)) == list(sentences)
