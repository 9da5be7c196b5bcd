"""Makes the search of a sentence, with the rules that depend on the vocabulary."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from translane_server.core.arrays import BoolArray
from translane_server.engine.phrases import SuppressedPhrases
from translane_server.engine.required_phrases import RequiredPhrases
from translane_server.engine.search import Search
from translane_server.engine.sentence import Task
from translane_server.engine.surfaces import SurfaceIndex
from translane_server.engine.vocabulary import TargetVocabulary

_SHARED_PHRASES = 16  # sets of suppressed phrases in the cache; each takes masks of the vocabulary's size


class SearchFactory:
    """Makes searches.

    Args:
        vocabulary: the target vocabulary.
    """

    def __init__(self, vocabulary: TargetVocabulary) -> None:
        self._vocabulary = vocabulary
        self._index = SurfaceIndex(vocabulary.surfaces)
        self._continues_word: BoolArray = np.ones(len(vocabulary.surfaces), np.bool_)
        self._continues_word[self._index.starting(b" ")] = False
        self._continues_word[vocabulary.eos : vocabulary.eos + 1] = False
        self._phrases = lru_cache(_SHARED_PHRASES)(lambda phrases: SuppressedPhrases(phrases, self._index))

    def begin(self, task: Task, row: int) -> Search:
        """Make the search of a task that begins in `row`."""
        search = Search.begin(task, row)
        if search.logits_until:
            self._set_rules(search)
        return search

    def _set_rules(self, search: Search) -> None:
        sentence, vocabulary = search.task.sentence, self._vocabulary
        options = sentence.options
        if options.suppressed_ids:
            search.banned = np.zeros(len(vocabulary.surfaces), np.bool_)
            search.banned[list(options.suppressed_ids)] = True
        if sentence.word_follows:
            search.banned_first = self._continues_word
        if options.suppressed_phrases:
            search.phrases = self._phrases(options.suppressed_phrases)
        if sentence.required_phrases:
            search.required = RequiredPhrases(sentence.required_phrases, vocabulary.surfaces, vocabulary.eos)
