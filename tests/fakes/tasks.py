"""Tasks for a running batch or a replica, without a dispatcher."""

from __future__ import annotations

from translane_server.sentence import Task


def tasks(sentences, *, streamed=False, priority=0):
    """A task for each of `sentences`, by their places."""
    return [Task(number, priority, 0.0, streamed, sentence) for number, sentence in enumerate(sentences)]


def enter(batch, backend, waiting):
    """Encode the sources of tasks, and begin to decode them; return their searches."""
    backend.encode_ahead([task.sentence.source_ids for task in waiting])
    searches = batch.add(waiting)
    backend.enter(range(len(waiting)), [search.rows[0] for search in searches])
    return searches


def step(batch, backend):
    """Decode one token of each row; return what the step has changed."""
    backend.move_rows(batch.compact())
    update = batch.advance(backend.decode_step(*batch.inputs, batch.needs))
    backend.move_rows(update.moves)
    return update
