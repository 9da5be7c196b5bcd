"""Scores of given translations: the same cases run against both clients."""

from __future__ import annotations

import math
from typing import Any

import pytest
from unit.client.fake_server import FakeServer, refuses

from translane import InvalidArgument, Score
from translane.v1 import translation_pb2 as pb


def pairs_of(count: int) -> list[tuple[str, str]]:
    return [(f"source {index}", "x" * index) for index in range(count)]


def test_a_pair_gives_a_score(server: FakeServer, connect):
    (score,) = connect(server.address).score([("猫", "cat")])
    versions = {"zh-en": "2@5f1c0a9b3e21"}
    assert score == Score(-4.0, (-1.0,) * 4, model="zh-en", versions=versions)
    assert (score.mean_log_prob, score.perplexity) == (-1.0, math.e)
    assert server.listings == 0


@pytest.mark.parametrize("count", [0, 1, 2, 9, 30])
def test_scores_come_in_order_and_in_batches(server: FakeServer, connect, count: int):
    client = connect(server.address, batch_size=4, concurrency=3)
    expected = [-index - 1.0 for index in range(count)]
    assert [score.total_log_prob for score in client.score(pairs_of(count))] == expected
    assert [score.total_log_prob for score in client.score_iter(iter(pairs_of(count)))] == expected
    assert max(server.sizes(), default=0) <= 4
    assert server.most_running <= 3


def test_a_request_holds_what_was_set_and_nothing_else(server: FakeServer, connect):
    client = connect(server.address)
    client.score([["a", "b"]])
    settings: dict[str, Any] = {"model": "m", "source_language": "zh", "target_language": "en", "return_tokens": True}
    client.score([("", "")], **settings)
    assert server.requests == [
        pb.ScoreRequest(inputs=[pb.ScoreInput(source="a", target="b")]),
        pb.ScoreRequest(inputs=[pb.ScoreInput()], **settings),
    ]


@pytest.mark.parametrize(
    ("pairs", "options", "message"),
    [
        ([("a", "b")], {"beam_size": 3}, "unknown option 'beam_size'"),
        ([("a", "b")], {"return_tokens": "no"}, "return_tokens must be a bool, not 'no'"),
        ([("a", "b"), "ab"], {}, r"inputs\[1\] must be a pair of source and target, not 'ab'"),
        ([("a", "b", "c")], {}, r"inputs\[0\] must be a pair"),
        ([None], {}, r"inputs\[0\] must be a pair"),
        (("a", "b"), {}, r"inputs\[0\] must be a pair of source and target, not 'a'"),
        ([("a", b"b")], {}, r"inputs\[0\]\.target must be a str, not bytes"),
        ([("a", "b"), (1, "b")], {}, r"inputs\[1\]\.source must be a str, not int"),
    ],
)
def test_what_makes_no_sense_is_named(server: FakeServer, connect, pairs, options, message: str):
    with pytest.raises(TypeError, match=message):
        connect(server.address).score(pairs, **options)
    assert not server.requests


def test_a_failed_batch_names_the_callers_index(server: FakeServer, connect):
    server.by_text(**{"source 6": refuses(("inputs[1].target", "too long"))})
    scores = connect(server.address, batch_size=5, concurrency=2).score_iter(pairs_of(100))
    received: list[float] = []
    with pytest.raises(InvalidArgument, match=r"^inputs\[6\]\.target: too long$") as caught:
        received.extend(score.total_log_prob for score in scores)
    assert received == [-1.0, -2.0, -3.0, -4.0, -5.0]
    assert caught.value.field == "inputs[6].target"
    assert len(server.requests) <= 3


def test_a_score_is_sound_at_its_edges():
    assert Score(0.0, ()).mean_log_prob == 0.0
    assert Score(0.0, ()).perplexity == 1.0
    assert Score(-1e9, (-1e9,)).perplexity == math.inf
    assert Score(-math.inf, (-math.inf,)).perplexity == math.inf
