"""The loop of a replica on a backend without a model: who is encoded when, and who enters; what is reported."""

import itertools
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest

from fakes.backend import EOS, OFFSET, VOCABULARY, FakeBackend
from fakes.language_model import RandomBackend, RandomModel
from translane_server.core.errors import EngineError
from translane_server.engine import offline
from translane_server.engine.loop import EngineLoop, ServerGoneError
from translane_server.engine.options import DecodingOptions
from translane_server.engine.search import SearchFactory
from translane_server.engine.sequence import EngineInput, EngineOutput, Sentence, Sequence
from translane_server.workers.worker_process import Activity

MODEL = RandomModel()
STARVED = EngineOutput(is_starved=True)


class ScriptedServer:
    """Tells what it was told to before the loop runs, or meanwhile; it goes when all have ended."""

    def __init__(self):
        self.outputs = []
        self.sequences, self.cancelled, self.answers = [], [], False
        self.left = set()

    def order(self, sequence):
        self.sequences.append(sequence)
        self.left.add(sequence.number)

    def has_arrivals(self):
        return bool(self.sequences or self.cancelled)

    def inputs(self, *, wait):
        if not self.left:
            raise ServerGoneError
        if not (self.sequences or self.cancelled):
            assert not wait, "the loop waits for ever"
            return []
        told = EngineInput(self.sequences, self.cancelled, self.answers)
        self.sequences, self.cancelled, self.answers = [], [], False
        return [told]

    def put(self, output):
        self.outputs.append(output)
        self.left -= {number for number, _ in output.ended} | {*output.dropped, *output.failed}

    @property
    def ended(self):
        return [each for output in self.outputs for each in output.ended]

    @property
    def dropped(self):
        return [number for output in self.outputs for number in output.dropped]


class Calls:
    """Sentences that are decoded by `run`, which returns when all have ended.

    `at_step[n]` is called before the n-th step of the decoder.
    """

    def __init__(self, rows, steps_at_once=1, *, stops=False):
        self.backend = FakeBackend(rows)
        self.backend.steps_at_once, self.backend.stops_between_steps = steps_at_once, stops
        self.server = ScriptedServer()
        self.clock = itertools.count().__next__
        self.activities = Activity(0)
        self.loop = EngineLoop(self.backend, self.server, VOCABULARY, self.activities.of(0).set, self.clock)
        self.at_step: dict[int, Callable[[], object]] = {}
        step = self.backend.decode_step

        def step_after_call(*arguments):
            self.at_step.get(len(self.backend.step_rows), lambda: None)()
            return step(*arguments)

        self.backend.decode_step = step_after_call
        self.ahead: list[tuple[int, int, int]] = []  # of each call: its furthest position, steps asked for, steps made
        decode_ahead = self.backend.decode_ahead

        def counted(token_ids, positions, steps, *arguments):
            tokens = decode_ahead(token_ids, positions, steps, *arguments)
            self.ahead.append((int(positions.max()), steps, len(tokens)))
            return tokens

        self.backend.decode_ahead = counted

    def submit(self, token, length, priority=0, *, streamed=False, **options):
        sentence = Sentence([token] * length + [EOS], DecodingOptions(20, **options))
        self.server.order(Sequence(token, priority, self.clock(), streamed, sentence))

    def cancel(self, token):
        self.server.cancelled.append(token)

    def run(self):
        assert self.loop.run()
        assert self.loop._batch.size == 0
        self.results = dict(self.server.ended)
        self.order = [number for number, _ in self.server.ended]
        for token, result in self.results.items():
            (ids,) = {hypothesis.token_ids for hypothesis in result.hypotheses}
            assert ids == (token + OFFSET,) * len(ids)

    @property
    def encoded(self):
        return [entry[1] for entry in self.backend.log if entry[0] == "encode"]


def test_whoever_is_encoded_enters_as_soon_as_there_is_a_row_and_nothing_is_moved_for_that():
    calls = Calls(rows=4)
    for token, length in ((10, 1), (11, 6), (12, 2), (13, 6), (14, 4), (15, 3)):
        calls.submit(token, length)
    calls.run()
    # The last two enter after the second and the third step, so that all others end with the seventh.
    assert calls.backend.log == [("encode", 6), *[("step", 4)] * 7]


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_what_is_too_much_to_encode_at_once_is_encoded_later(limit):
    calls = Calls(rows=4)
    calls.backend.encode_limit = limit
    for token in range(10, 20):
        calls.submit(token, length=2)
    calls.run()
    assert max(calls.encoded) == limit
    assert sum(calls.encoded) == 10
    events = [entry[0] for entry in calls.backend.log if entry[0] != "move"]
    assert ("encode", "encode") not in set(itertools.pairwise(events)), "one run between two steps"


def test_what_is_cancelled_after_it_was_encoded_gets_no_row():
    calls = Calls(rows=2)
    for token, length in ((10, 3), (11, 8), (12, 3), (13, 2)):
        calls.submit(token, length)
    calls.at_step[1] = lambda: calls.cancel(12)
    calls.run()
    assert (calls.encoded, calls.server.dropped) == ([4], [12])
    assert set(calls.order) == {10, 11, 13}


def test_the_phases_add_up_to_the_whole_time():
    calls = Calls(rows=2)
    for token in range(10, 14):
        calls.submit(token, length=3)
    submitted = {token: number for number, token in enumerate(range(10, 14))}
    calls.run()
    totals = []
    for token, result in calls.results.items():
        timing = result.timing
        assert min(timing.queue, timing.encode, timing.decode) > 0
        totals.append(submitted[token] + timing.queue + timing.encode + timing.decode)
    assert totals == sorted(totals)
    assert totals[0] == totals[1] < totals[2]


def test_sentences_of_several_rows_are_encoded_ahead_and_wait_for_room():
    backend, server = RandomBackend(MODEL, rows=4), ScriptedServer()
    encode, encoded = backend.encode_ahead, []
    backend.encode_ahead = lambda sources: encoded.append(len(sources)) or encode(sources)
    for token in range(2, 10):
        server.order(Sequence(token, 0, 0.0, False, Sentence([token, 1], DecodingOptions(6, beam_size=2))))
    assert EngineLoop(backend, server, MODEL.vocabulary, clock=float).run()
    assert encoded == [8]  # of two rows each; the dispatcher sends no more than as many rows again
    assert max(backend.step_rows) == 4
    assert len(server.ended) == 8


@pytest.mark.parametrize("stops", [False, True])
@pytest.mark.parametrize("steps_at_once", [2, 3, 4])
def test_several_steps_at_once_give_every_sentence_what_single_steps_do(steps_at_once, stops):
    """Sentences of all lengths and limits, more than there are rows; now and then beams or a sample is among them."""
    more: dict[int, dict[str, Any]] = {3: {"beam_size": 2}, 5: {"scores": True}, 6: {"alignment": True}}

    def decode(at_once):
        backend, server = RandomBackend(MODEL, rows=4), ScriptedServer()
        backend.steps_at_once, backend.stops_between_steps = at_once, stops
        for number in range(60):
            settings = {"scores": False, **more.get(number % 10, {})}
            source = [2 + number % 30, 2 + number // 30, 1]
            sentence = Sentence(source, DecodingOptions(1 + number % 13, **settings))
            server.order(Sequence(number, 0, 0.0, False, sentence))
        assert EngineLoop(backend, server, MODEL.vocabulary, clock=float).run()
        return {number: result.hypotheses for number, result in server.ended}, backend

    expected, single = decode(1)
    found, several = decode(steps_at_once)
    assert found == expected
    assert several.calls_ahead > 0
    assert single.calls_ahead == 0


def test_steps_are_taken_one_by_one_while_a_sentence_waits():
    calls = Calls(rows=2, steps_at_once=4)
    for token, length in ((10, 9), (11, 3), (12, 9)):
        calls.submit(token, length, scores=False)
    calls.run()
    assert calls.backend.step_rows[:4] == [2] * 4
    # from when the last sentence has a row, which the second one left
    assert [steps for _, steps, _ in calls.ahead] == [4, 4, 4]


def test_a_backend_that_stops_between_steps_stops_when_a_sentence_ends_so_that_the_next_one_joins():
    calls = Calls(rows=2, steps_at_once=8, stops=True)
    for token, length in ((10, 9), (11, 3), (12, 2)):
        calls.submit(token, length, scores=False)
    calls.run()
    assert len(calls.backend.step_rows) == 10
    assert [made for _, _, made in calls.ahead] == [4, 3, 3], "each ends with a sentence"


def test_a_backend_that_stops_between_steps_stops_for_inputs():
    calls = Calls(rows=2, steps_at_once=8, stops=True)
    calls.submit(10, 9, scores=False)
    calls.at_step[2] = lambda: calls.submit(11, 2, scores=False)
    calls.run()
    assert (calls.encoded, calls.backend.step_rows) == ([1, 1], [1] * 3 + [2] * 3 + [1] * 4)


def test_what_a_free_row_waits_for_is_not_delayed_by_steps_ahead():
    """The encoder takes one sentence between two steps, and the batch has room for all."""
    calls = Calls(rows=3, steps_at_once=8, stops=True)
    calls.backend.encode_limit = 1
    for token in (10, 11, 12):
        calls.submit(token, 6, scores=False)
    calls.run()
    assert calls.backend.step_rows[:3] == [1, 2, 3]


def test_a_row_is_never_fed_beyond_its_limit_by_steps_ahead():
    calls = Calls(rows=2, steps_at_once=4)
    calls.backend.target_capacity = 20
    calls.submit(10, 18, scores=False)
    calls.submit(11, 19, scores=False)
    calls.run()
    assert [(position, steps) for position, steps, _ in calls.ahead] == [(0, 4), (4, 4), (8, 4), (12, 4), (16, 4)]


def test_higher_priority_enters_first_and_equal_ones_in_order_of_arrival_whoever_is_cancelled():
    calls = Calls(rows=1)
    for token, priority in ((10, 0), (11, 5), (12, 0), (13, 5), (14, 0)):
        calls.submit(token, length=2, priority=priority)
    calls.cancel(12)
    calls.run()
    assert (calls.encoded, calls.server.dropped, calls.order) == ([4], [12], [11, 13, 10, 14])


def test_a_cancelled_sentence_frees_its_row_within_a_step_and_is_reported_once():
    calls = Calls(rows=4)
    calls.submit(10, length=9)
    calls.submit(11, length=3)
    calls.at_step[1] = lambda: calls.cancel(10)
    calls.at_step[3] = lambda: calls.cancel(10)
    calls.run()
    assert (calls.backend.step_rows, calls.server.dropped, calls.order) == ([2, 2, 1, 1], [10], [11])


def test_everything_is_measured():
    calls = Calls(rows=4)
    calls.submit(10, length=1)
    calls.submit(20, length=2)
    calls.run()
    measured = [output.stats for output in calls.server.outputs]
    assert [tokens for each in measured for _, tokens in each.encodes] == [5]
    assert sum(len(each.queue_times) for each in measured) == sum(len(each.first_token_times) for each in measured) == 2
    assert [rows for each in measured for _, rows in each.steps] == [2, 2, 1]
    assert [rows for each in measured for _, rows in each.moves] == [1]


@pytest.mark.parametrize(("answers", "ended"), [(False, [1]), (True, [0, 1])], ids=["by itself", "when it is asked"])
def test_a_replica_without_results_tells_of_its_steps_only_when_it_is_asked(answers, ended):
    calls = Calls(rows=4)
    calls.server.answers = answers
    calls.submit(10, length=18)
    calls.run()
    assert [len(output.ended) for output in calls.server.outputs] == ended


def test_without_a_server_a_failed_step_ends_the_call_and_the_next_call_decodes():
    backend = FakeBackend(rows=2)
    sentences = [Sentence([token] * token + [EOS], DecodingOptions(20)) for token in (9, 8, 7, 6)]
    step, fail = backend.decode_step, once(MemoryError())
    backend.decode_step = lambda *arguments: fail() or step(*arguments)
    with pytest.raises(EngineError, match="failed in a step"):
        offline.decode(backend, VOCABULARY, sentences)
    results = offline.decode(backend, VOCABULARY, sentences)
    assert [len(result.hypotheses[0].token_ids) for result in results] == [9, 8, 7, 6]
    assert not backend.closed


def once(error):
    """A function that raises `error` at its first call."""
    errors = [error]

    def fail():
        if errors:
            raise errors.pop()

    return fail


def failed(calls):
    return [number for output in calls.server.outputs for number in output.failed]


@pytest.mark.parametrize(
    ("broken", "error", "outputs"),
    [
        ("decode_step", RuntimeError("the device fell off the bus"), []),
        ("encode_ahead", RuntimeError("no device"), []),
        ("decode_step", MemoryError(), [STARVED]),
        (
            "decode_step",
            RuntimeError("Failed to allocate memory for requested buffer"),
            [STARVED],
        ),
    ],
)
def test_a_backend_that_fails_whatever_the_sentence_ends_the_loop(broken, error, outputs, caplog):
    """The server decodes the sentence elsewhere. A lack of memory is told."""
    calls = Calls(rows=2)
    calls.submit(10, length=3)
    setattr(calls.backend, broken, Mock(side_effect=error))
    assert not calls.loop.run()
    assert calls.server.outputs == outputs
    assert caplog.messages[0] == "a step of 1 sentences has failed"
    assert caplog.messages[-1] == "the replica failed"


def test_a_search_that_cannot_begin_loses_no_sentence(monkeypatch):
    calls, begin = Calls(rows=3), SearchFactory.begin
    for token in (10, 11, 12, 13):
        calls.submit(token, length=3)
    fail = {11: once(MemoryError())}

    def failing(factory, sequence, *arguments):
        fail.get(sequence.number, lambda: None)()
        return begin(factory, sequence, *arguments)

    monkeypatch.setattr(SearchFactory, "begin", failing)
    calls.run()
    assert sorted(failed(calls)) == [10, 11, 12]
    assert calls.order == [13]


def test_an_alignment_that_fails_loses_no_sentence(monkeypatch):
    fail, align = once(MemoryError()), FakeBackend.align
    monkeypatch.setattr(FakeBackend, "align", lambda *arguments: [fail(), align(*arguments)][1])
    calls = Calls(rows=3)
    for token, length in ((10, 3), (11, 3), (12, 9), (13, 3)):
        calls.submit(token, length, alignment=token % 2 == 1)
    calls.run()
    assert failed(calls) == [10, 11, 12]
    assert calls.order == [13]


def test_an_encoder_run_that_fails_costs_none_of_the_sentences_that_decode():
    calls = Calls(rows=2)
    calls.submit(10, length=5)
    encode, fail = calls.backend.encode_ahead, once(RuntimeError("no memory"))
    calls.at_step[1] = lambda: (
        setattr(calls.backend, "encode_ahead", lambda sources: [fail(), encode(sources)][1]),
        calls.submit(11, length=2),
    )
    calls.at_step[3] = lambda: calls.submit(12, length=2)
    calls.run()
    assert failed(calls) == [11]
    assert calls.order == [10, 12]


def test_others_learn_when_it_is_at_work():
    calls = Calls(rows=4)
    seen = []
    other = calls.activities.of(1)
    calls.at_step[0] = lambda: seen.append(other.is_alone())
    inputs = calls.server.inputs

    def told(*, wait):
        if wait:
            seen.append(other.is_alone())
        return inputs(wait=wait)

    calls.server.inputs = told
    calls.submit(7, 3)
    calls.run()
    assert seen == [True, False, True], "it waits, it decodes, it waits"
