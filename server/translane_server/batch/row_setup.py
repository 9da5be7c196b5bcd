"""What a sentence begins with: the state of its first row, and what it shares with other sentences."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from translane_server.batch.rows import ALWAYS, RowTable
from translane_server.batch.search import Kind, Search
from translane_server.decoding.masks import MaskTable
from translane_server.decoding.phrases import SuppressedPhrases
from translane_server.decoding.surfaces import SurfaceIndex
from translane_server.job import Job
from translane_server.vocabulary import TargetVocabulary

# Candidates that a row with rules asks for beyond those it needs, in place of banned ones.
_SPARE_CANDIDATES = 8
_WORD_START = "word start"


class RowSetup:
    """Begins sentences in rows of `table`, and ends them."""

    def __init__(self, table: RowTable, vocabulary: TargetVocabulary) -> None:
        self.masks = MaskTable(len(vocabulary.surfaces))
        self._table = table
        self._vocabulary = vocabulary
        self._index = SurfaceIndex(vocabulary.surfaces)
        self._continues_word = np.ones(len(vocabulary.surfaces), np.bool_)
        self._continues_word[self._index.starting(b" ")] = False
        self._continues_word[vocabulary.eos : vocabulary.eos + 1] = False

    def begin(self, job: Job, row: int, others: Iterable[Search]) -> Search:
        """Begin a sentence in a row of its own; `others` are decoding now."""
        search = Search.begin(job, row, self._vocabulary, self._phrases(job, others))
        self._table.reset(row, self._vocabulary.decoder_start, job.source_length)
        if search.plain:
            self._table.limit[row] = job.sentence.options.max_length
            if search.beams is not None:
                self._table.kind[row] = search.kind
                self._table.num_candidates[row] = search.num_candidates
        else:
            self._fill(search, row)
        return search

    def end(self, search: Search) -> None:
        """Give back what a sentence holds beside its rows."""
        sentence = search.job.sentence
        if sentence.options.suppressed_ids:
            self.masks.release(sentence.options.suppressed_ids)
        if sentence.word_follows:
            self.masks.release(_WORD_START)

    def _phrases(self, job: Job, others: Iterable[Search]) -> SuppressedPhrases | None:
        """What may not occur in the sentence's translation; shared by all that are decoding now."""
        phrases = job.sentence.options.suppressed_phrases
        if not phrases:
            return None
        shared = (other.phrases for other in others if other.job.sentence.options.suppressed_phrases == phrases)
        return next(shared, None) or SuppressedPhrases(phrases, self._index)

    def _fill(self, search: Search, row: int) -> None:
        table, sentence = self._table, search.job.sentence
        options, forced = sentence.options, len(sentence.forced_ids)
        uncounted = forced - sentence.counted_ids
        table.forced_length[row] = forced
        table.forced[row, :forced] = sentence.forced_ids
        table.uncounted[row] = uncounted
        table.limit[row] = max(uncounted + options.max_length, forced + min(options.max_length, 1))
        table.eos_from[row] = uncounted + options.min_length
        table.kind[row] = search.kind
        table.repetition_penalty[row] = options.repetition_penalty
        table.ngram_size[row] = options.no_repeat_ngram_size
        table.attention[row] = options.attention
        if options.suppressed_ids:
            table.mask[row] = self.masks.acquire(options.suppressed_ids, np.array(options.suppressed_ids))
        if sentence.word_follows:
            table.first_mask[row] = self.masks.acquire(_WORD_START, self._continues_word)
        if options.sampling:
            table.temperature[row] = options.sampling.temperature
            table.top_k[row] = options.sampling.top_k
            table.top_p[row] = options.sampling.top_p
            table.seed[row] = options.sampling.seed
        table.special_until[row] = _special_until(search, forced, uncounted)
        table.needed[row] = search.num_candidates
        spare = _SPARE_CANDIDATES if table.special_until[row] > forced else 0
        table.num_candidates[row] = search.num_candidates + spare


def _special_until(search: Search, forced: int, uncounted: int) -> int:
    """For how many tokens a row needs its logits."""
    sentence, options = search.job.sentence, search.job.sentence.options
    if (
        options.repetition_penalty != 1
        or options.no_repeat_ngram_size
        or options.suppressed_ids
        or search.phrases
        or search.requirements
        or search.kind is Kind.SAMPLE_VOCABULARY
    ):
        return ALWAYS
    return max(forced + sentence.word_follows, uncounted + options.min_length if options.min_length else 0)
