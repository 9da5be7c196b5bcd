"""A trace: the same requests at the same moments for every server, in bursts, with paragraphs and their sentences."""

import itertools

import pytest

from benchmarks.models.trace import (
    BURST,
    CYCLE,
    LONGEST,
    TIMES,
    TraceRequest,
    arrivals,
    make_trace,
    read_trace,
    write_trace,
)

LINES = ["你好。", "我是学生。", "他在哪里？", "今天天气很好！", "没有句号"]


def test_requests_arrive_at_the_mean_rate_and_in_bursts():
    seconds = 4000.0
    times = list(itertools.takewhile(lambda at: at < seconds, arrivals(10.0, 3)))
    assert times == sorted(times)
    assert len(times) / seconds == pytest.approx(10.0, rel=0.03)
    in_bursts = sum(at % CYCLE >= CYCLE - BURST for at in times) / (BURST / CYCLE)
    calm = sum(at % CYCLE < CYCLE - BURST for at in times) / (1 - BURST / CYCLE)
    assert in_bursts / calm == pytest.approx(TIMES, rel=0.05)


def test_a_trace_is_the_same_again_and_has_the_asked_rate():
    trace = make_trace(LINES, "zh", rate=50.0, seconds=100.0, fixed=False)
    assert trace == make_trace(LINES, "zh", rate=50.0, seconds=100.0, fixed=False)
    assert trace != make_trace(LINES, "zh", rate=50.0, seconds=100.0, fixed=False, seed=1)
    assert sum(len(request.texts) for request in trace) / 100.0 == pytest.approx(50.0, rel=0.1)
    assert all(0 <= request.at < 100.0 for request in trace)


def test_a_paragraph_is_its_sentences_and_a_line_without_an_end_stands_alone():
    trace = make_trace(LINES, "zh", rate=50.0, seconds=40.0, fixed=False)
    paragraphs = [request for request in trace if request.paragraph]
    assert len(paragraphs) / len(trace) == pytest.approx(0.25, abs=0.06)
    for request in paragraphs:
        assert "".join(request.texts) == request.paragraph
        assert 2 <= len(request.texts) <= LONGEST
        assert set(request.texts) <= set(LINES[:4])
    assert any(request.texts == (LINES[4],) for request in trace)


def test_fixed_lengths_are_those_of_the_longest_sentence():
    lines = ["ab\t3", "cde\t7"]
    trace = make_trace(lines, "en", rate=50.0, seconds=10.0, fixed=True)
    assert {request.texts for request in trace if len(request.texts) == 1} == {("ab",), ("cde",)}
    for request in trace:
        assert request.paragraph is None
        assert request.max_length == (7 if "cde" in request.texts else 3)


def test_a_trace_is_kept_in_a_file(tmp_path):
    trace = [TraceRequest(0.5, ("你好。", "再见。"), "你好。再见。"), TraceRequest(1.25, ("a",), max_length=4)]
    write_trace(tmp_path / "trace.jsonl", trace)
    assert read_trace(tmp_path / "trace.jsonl") == trace
