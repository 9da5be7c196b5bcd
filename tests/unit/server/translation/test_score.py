"""Given translations to sentences for the engine, and its results to scores."""

import math

import pytest

from fakes.backend import EOS
from fakes.serving import FakeTokenizer, make_manifest
from translane.requests import ScoringRequest
from translane_server.core.budget import Budget, WorkEndedError
from translane_server.core.errors import InvalidRequestError
from translane_server.engine.sequence import Hypothesis, SentenceResult, Timing
from translane_server.translation.limits import RequestLimits, TokenLimits
from translane_server.translation.score import ScoreReader

LIMITS = RequestLimits(3, 8, TokenLimits(6, 5, 5), max_beam_size=4)
reader = ScoreReader(make_manifest(), FakeTokenizer(), LIMITS)


def request(*pairs, **fields):
    return ScoringRequest(pairs, **fields)


def read(asked):
    reader.check(asked)
    return reader.read(asked)


def violations(wrong):
    with pytest.raises(InvalidRequestError) as caught:
        read(wrong)
    return [violation.field for violation in caught.value.violations]


def test_targets_are_forced_with_their_end():
    first, second = read(request(("ab", "xyz"), ("c", ""))).sentences
    assert first.forced_ids == (*FakeTokenizer().encode_target(["xyz"])[0], EOS)
    assert first.source_ids == FakeTokenizer().encode(["ab"])[0]
    assert first.options.max_length == 0
    assert second.forced_ids == (EOS,)


def test_scores_are_sums():
    prepared = read(request(("ab", "xy")))
    (sentence,) = prepared.sentences
    hypothesis = Hypothesis(sentence.forced_ids[:-1], 0.0, True, (-0.1, -0.2, -0.3))
    results = [SentenceResult((hypothesis,), Timing(0, 0, 0))]
    (score,) = prepared.scores(results, True)
    assert score.total_log_prob == math.fsum((-0.1, -0.2, -0.3))
    assert score.token_log_probs == pytest.approx([-0.1, -0.2, -0.3])
    assert score.tokens == ("x", "y", "</s>")
    assert not prepared.scores(results, False)[0].tokens


def test_wrong_inputs_are_named():
    assert violations(request()) == ["inputs"]
    assert violations(request(*[("a", "b")] * 4)) == ["inputs"]
    assert violations(request(("a", "b"), ("", "b"), ("a" * 6, "b" * 5), source_language="de")) == [
        "inputs[1].source",
        "inputs[2].source",
        "inputs[2].target",
        "source_language",
    ]
    assert violations(request(source_language="de")) == ["inputs", "source_language"]


def test_reading_and_building_end_with_the_caller():
    asked = request(("ab", "xy"))
    budget = Budget()
    budget.end()
    with pytest.raises(WorkEndedError):
        reader.read(asked, budget)
    hypothesis = Hypothesis((1, 2), 0.0, True, (-0.1, -0.2, -0.3))
    with pytest.raises(WorkEndedError):
        read(asked).scores([SentenceResult((hypothesis,), Timing(0, 0, 0))], False, budget)


def test_reading_has_a_time():
    budget = Budget(0.0, clock=iter([1.0, 2.0]).__next__)
    budget.start()
    with pytest.raises(InvalidRequestError, match="inputs: takes more than 0 seconds to read"):
        reader.read(request(("ab", "xy")), budget)
