"""Decodes sentences with what was exported, and keeps what it said at each step.

The exported graphs decode many sentences at once, each at its own position, as the server does. Logits are kept in a
file: those of all steps together take more memory than the model, where its vocabulary is large.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections import abc
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from translane_export.core.errors import ExportError
from translane_export.model import TransformerConfig
from translane_server.core.arrays import FloatArray, IntArray
from translane_server.engine.options import DecodingOptions
from translane_server.engine.running_batch import RunningBatch
from translane_server.engine.search import Search
from translane_server.engine.sequence import Sentence, Sequence, TargetVocabulary
from translane_server.runtime.backend import BEST_TOKEN_ALONE, Backend, Candidates, StepNeeds

ROWS = 8
ADMITTED_TOGETHER = 3
CANDIDATES = 4
_MOST_STEPS = 96
_NEVER = -1  # an end-of-sentence id that no model predicts


class LogitFile:
    """Logits [V] of steps, numbered from 0, in a file without a name in `folder`; a temporary one by default."""

    def __init__(self, vocab_size: int, folder: Path | None = None) -> None:
        self._vocab_size = vocab_size
        self._count = 0
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 closed, and gone, with this object
        weakref.finalize(self, self._file.close)

    def append(self, logits: FloatArray) -> int:
        """Keep the logits [V] of a step; return its number."""
        assert logits.shape == (self._vocab_size,), "logits of another vocabulary"
        self._file.seek(0, os.SEEK_END)
        self._file.write(np.ascontiguousarray(logits, np.float32).data)
        self._count += 1
        return self._count - 1

    def read(self, numbers: abc.Sequence[int]) -> FloatArray:
        """Return the logits [t, V] of the steps of these numbers."""
        logits = np.empty((len(numbers), self._vocab_size), np.float32)
        for row, number in zip(logits, numbers, strict=True):
            self._file.seek(number * row.nbytes)
            self._file.readinto(row.data)
        return logits


@dataclass
class Decode:
    """A sentence that was decoded, with what the graphs said at each step; T steps in all."""

    source: list[int]
    most_steps: int
    logits: LogitFile
    tokens: list[int] = field(default_factory=list)
    candidate_ids: list[IntArray] = field(default_factory=list)  # [K] each
    candidate_log_probs: list[FloatArray] = field(default_factory=list)  # [K] each
    steps: list[int] = field(default_factory=list)  # their numbers in the file of logits
    chosen_in: list[int] = field(default_factory=list)  # the row of each step
    attention: FloatArray | None = None  # [T, C], if it is compared

    def add(self, row: int, candidates: Candidates) -> None:
        """Append the step that `candidates` has on a row; the backend gives the same memory at every step."""
        assert candidates.logits is not None
        assert candidates.log_probs is not None
        self.tokens.append(int(candidates.token_ids[row, 0]))
        self.steps.append(self.logits.append(candidates.logits[row]))
        self.chosen_in.append(row)
        self.candidate_ids.append(candidates.token_ids[row].copy())
        self.candidate_log_probs.append(candidates.log_probs[row].copy())


def record_decodes(
    backend: Backend,
    config: TransformerConfig,
    sources: abc.Sequence[abc.Sequence[int]],
    *,
    attention: bool = False,
    greedy: bool = False,
    folder: Path | None = None,
    progress: Callable[[int], object] = lambda _number: None,
) -> list[Decode]:
    """Decode `sources` greedily with `backend`, keeping attention weights where there are any to compare.

    The last source is decoded alone up to the capacity, whether or not the sentence ends before. With `greedy`, the
    backend has a graph for steps of which nothing but the best token is wanted, and each step is taken with that, too.
    `folder` is where the logits are, while what is returned lives. `progress` is told the number of sentences that are
    done.

    Raises:
        ExportError: a step chose an id outside the vocabulary, or another id when it was asked for nothing else.
        OSError: the logits cannot be written.
    """
    logits = LogitFile(config.target_vocab_size, folder)
    needs = StepNeeds(min(CANDIDATES, config.target_vocab_size), logits=True)
    capacity = backend.target_capacity
    # decodes of many lengths, also where a model never ends a sentence
    decodes = [Decode(list(source), min(capacity, _MOST_STEPS, 2 * len(source) + 6), logits) for source in sources[:-1]]
    last = [Decode(list(source), capacity, logits) for source in sources[-1:]]
    done: list[Decode] = []
    for together, eos in ((decodes, config.eos_id), (last, _NEVER)):
        for decode in _decode_greedily(backend, config, together, needs, eos=eos, attention=attention, greedy=greedy):
            done.append(decode)
            progress(1)
    return done


def _decode_greedily(
    backend: Backend,
    config: TransformerConfig,
    decodes: abc.Sequence[Decode],
    needs: StepNeeds,
    *,
    eos: int,
    attention: bool,
    greedy: bool,
) -> Iterable[Decode]:
    """Decode as the server does, by a running batch, and yield each sentence once it has ended."""
    vocabulary = TargetVocabulary(config.start_id, eos)
    batch = RunningBatch(backend.rows, backend.target_capacity, vocabulary, backend.align)
    waiting = [
        Sequence(number, 0, 0.0, False, Sentence(decode.source, DecodingOptions(decode.most_steps)))
        for number, decode in enumerate(decodes)
    ]
    running: dict[Search, Decode] = {}
    while waiting or running:
        # a few at a step, so that rows are at different places in their sentences
        entering = waiting[: min(ADMITTED_TOGETHER, backend.rows - batch.reserved)]
        if entering:
            entering = entering[: backend.encode_ahead([each.sentence.source_ids for each in entering])]
            del waiting[: len(entering)]
            searches = batch.add(entering)
            backend.enter(range(len(entering)), [search.rows[0] for search in searches])
            running |= {search: decodes[search.sequence.number] for search in searches}
        backend.move_rows(batch.compact())
        # at the same positions, so the step after it finds what it would have found without it
        alone = backend.decode_step(*batch.inputs, BEST_TOKEN_ALONE).token_ids[:, 0].copy() if greedy else None
        candidates = backend.decode_step(*batch.inputs, needs, batch.steps if attention else None)
        if alone is not None:
            _check_same(alone, candidates)
        over = [search for search, decode in running.items() if not _take(decode, search.rows[0], candidates, config)]
        over += [search for search in batch.advance(candidates).done if search not in over]
        for search in over:
            batch.drop({search.sequence.number})  # where it has not ended by itself
            decode = running.pop(search)
            if attention:
                decode.attention = backend.align(search.rows[0], search.entered_step, decode.chosen_in)
            yield decode


def _take(decode: Decode, row: int, candidates: Candidates, config: TransformerConfig) -> bool:
    """Keep a step of a row; whether the decode can go on. PyTorch takes padding for what is not there."""
    decode.add(row, candidates)
    chosen = decode.tokens[-1]
    if not 0 <= chosen < config.target_vocab_size:
        raise ExportError(f"the exported model chose {chosen}, which is no id of its target vocabulary")
    return chosen != config.pad_id


def _check_same(alone: IntArray, candidates: Candidates) -> None:
    """Refuse a greedy graph that chooses other tokens, [n], than the decoder's graph.

    Rows without numbers are left to the comparison with PyTorch, which tells why there are none.
    """
    assert candidates.logits is not None
    best = candidates.token_ids[:, 0]
    numbers = ~np.isnan(candidates.logits).any(axis=1)
    if (different := np.flatnonzero((alone != best) & numbers)).size:
        row = different[0]
        raise ExportError(
            f"the exported greedy step chose {alone[row]} where the decoder's graph, from the same input, chose"
            f" {best[row]}"
        )
