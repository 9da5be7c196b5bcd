"""Sequences for a running batch or a worker, without a dispatcher."""

from __future__ import annotations

from collections import abc

from translane_server.engine.running_batch import RunningBatch, Update
from translane_server.engine.search import Search
from translane_server.engine.sequence import Sentence, Sequence
from translane_server.runtime.backend import Backend


def sequences(sentences: abc.Sequence[Sentence], *, streamed: bool = False, priority: int = 0) -> list[Sequence]:
    """Return a sequence for each sentence. The sequence's number is the sentence's place."""
    return [Sequence(number, priority, 0.0, streamed, sentence) for number, sentence in enumerate(sentences)]


def enter(batch: RunningBatch, backend: Backend, waiting: abc.Sequence[Sequence]) -> list[Search]:
    """Encode the sources of sequences, and enter them into the batch; return their searches."""
    backend.encode_ahead([each.sentence.source_ids for each in waiting])
    searches = batch.add(waiting)
    backend.enter(range(len(waiting)), [search.rows[0] for search in searches])
    return searches


def step(batch: RunningBatch, backend: Backend) -> Update:
    """Decode one token of each row; return the step's update."""
    backend.move_rows(batch.compact())
    update = batch.advance(backend.decode_step(*batch.inputs, batch.needs))
    backend.move_rows(update.moves)
    return update
