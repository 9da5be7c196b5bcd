"""Sequences for a running batch, without a dispatcher and a loop."""

import random
from collections import abc
from dataclasses import dataclass, field

from fakes.language_model import RandomBackend, RandomModel
from translane_server.engine.running_batch import RunningBatch
from translane_server.engine.search import returned_hypotheses
from translane_server.engine.sequence import AlignedToken, Hypothesis, Sentence, Sequence


@dataclass
class Decoded:
    """What became of sentences: the hypotheses of each that was not dropped, committed tokens, and their alignment.

    All are by the sentence's place.
    """

    backend: RandomBackend
    results: dict[int, tuple[Hypothesis, ...]] = field(default_factory=dict)
    committed: dict[int, tuple[int, ...]] = field(default_factory=dict)
    aligned: dict[int, tuple[AlignedToken, ...]] = field(default_factory=dict)


def decode(
    sentences: abc.Sequence[Sentence],
    model: RandomModel,
    rows: int,
    *,
    seed: int | None = None,
    streamed: bool = False,
    drops: float = 0.0,
) -> Decoded:
    """Decode sentences, which enter when there is room.

    Args:
        seed: of their order and the steps that they wait; none: they enter in their order, and at once.
        streamed: whether somebody listens.
        drops: the probability that a step drops a sentence.
    """
    decoded = Decoded(backend := RandomBackend(model, rows=rows))
    batch = RunningBatch(rows, backend.target_capacity, model.vocabulary, backend.align)
    waiting = [Sequence(number, 0, 0.0, streamed, sentence) for number, sentence in enumerate(sentences)]
    generator = random.Random(seed)
    if seed is not None:
        generator.shuffle(waiting)
    while waiting or batch.size:
        admitted: list[Sequence] = []
        free = rows - batch.reserved
        while waiting and (free := free - waiting[0].sentence.options.rows) >= 0:
            if seed is not None and generator.random() < 0.4 and (batch.size or admitted):
                break
            admitted.append(waiting.pop(0))
        if admitted:
            backend.encode_ahead([each.sentence.source_ids for each in admitted])
            searches = batch.add(admitted)
            backend.enter(range(len(admitted)), [search.rows[0] for search in searches])
        if generator.random() < drops:
            batch.drop({generator.randrange(len(sentences))})
        if not batch.size:
            continue
        backend.move_rows(batch.compact())
        update = batch.advance(backend.decode_step(*batch.inputs, batch.needs, batch.keep))
        backend.move_rows(update.moves)
        for search, tokens in batch.committed():
            assert tokens.token_ids
            number = search.sequence.number
            decoded.committed[number] = decoded.committed.get(number, ()) + tokens.token_ids
            decoded.aligned[number] = decoded.aligned.get(number, ()) + tokens.alignment
        for search in update.done:
            assert search.sequence.number not in decoded.results
            decoded.results[search.sequence.number] = returned_hypotheses(search, backend.align)
    assert batch.reserved == 0
    assert batch.needs.num_candidates == 1
    return decoded
