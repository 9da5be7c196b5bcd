import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fakes.backend import FakeBackend
from translane_server.engine.options import DecodingOptions
from translane_server.engine.running_batch import RunningBatch
from translane_server.engine.sequence import Sentence, Sequence, TargetVocabulary
from translane_server.runtime.backend import Candidates, StepNeeds

EOS = 3


_numbers = itertools.count()


def job(length=2, max_length=8, **options):
    return Sequence(next(_numbers), 0, 0.0, False, Sentence([7] * length, DecodingOptions(max_length, **options)))


def candidates(*token_ids, log_prob=-0.25):
    ids = np.array(token_ids, np.int64).reshape(-1, 1)
    return Candidates(ids, np.full(ids.shape, log_prob, np.float32))


def batch(rows=8):
    return RunningBatch(rows, 8, TargetVocabulary(2, EOS), FakeBackend().align)


def test_log_probabilities_are_asked_for_while_a_sentence_tells_its_score():
    running = batch()
    running.add([job(scores=False)])
    assert running.needs == StepNeeds(log_probs=False)
    running.add([job(max_length=1)])
    assert running.needs == StepNeeds(log_probs=True)
    running.advance(candidates(10, 11))
    assert running.size == 1
    running.compact()
    assert running.needs == StepNeeds(log_probs=False)
    (search,) = running.add([job()])
    running.drop({search.sequence.number})
    assert running.needs == StepNeeds(log_probs=False)


@given(st.sets(st.integers(0, 7)))
def test_as_few_rows_are_moved_as_have_left_holes(leaving):
    running = batch()
    members = running.add([job() for _ in range(8)])
    running.advance(candidates(*range(100, 108)))
    running.drop({members[row].sequence.number for row in leaving})
    moves = running.compact()
    assert running.size == 8 - len(leaving)
    assert len(moves) == sum(row < running.size for row in leaving)


def test_one_stream_leaves_the_others_a_plain_step():
    running = batch()
    running.add([job(scores=False), Sequence(99, 0, 0.0, True, Sentence([7], DecodingOptions(8, scores=False)))])
    assert running.needs == StepNeeds(log_probs=False)
    running.advance(Candidates(np.array([[10], [11]])))
    ((search, tokens),) = running.committed()
    assert (search.sequence.number, tokens.token_ids) == (99, (11,))
    assert running.greedy_steps == 0, "somebody waits for each token"
