"""Given translations to sentences for the engine, and its results to scores."""

import pytest

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
