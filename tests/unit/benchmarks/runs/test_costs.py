"""What decoding costs: cases, how they are measured, and their tables."""

import pytest

from benchmarks.measuring.cases import measure
from benchmarks.measuring.timed import TimedDecoder
from benchmarks.places import DEMO
from benchmarks.report import cost_tables
from benchmarks.runs import costs
from translane_server.bundle import load_bundle

ROWS = 4


@pytest.fixture(scope="module")
def decoder():
    found = TimedDecoder(load_bundle(DEMO), rows=ROWS, threads=1, ends=False)
    yield found
    found.close()


def test_a_steady_load_runs_all_rows_in_every_step_and_churn_does_not(decoder):
    cases = {case.name: case for case in costs.steps(decoder, "cpu")}
    assert {name: case.streams for name, case in cases.items()} == {
        "steady": 0,
        "steady, one stream": 1,
        "steady, all streams": ROWS,
        "churn": 0,
    }
    for name, case in cases.items():
        times = decoder.decode(case.sentences, case.streams)
        generated = sum(sentence.options.max_length for sentence in case.sentences)
        assert times.rows == generated, name
        assert (times.steps == costs.TARGET_LENGTH) == (name != "churn"), name


def test_every_way_fills_the_rows_for_as_many_steps(decoder):
    cases = list(costs.ways(decoder, ""))
    assert {case.name for case in cases} == set(costs.WAYS)
    for case in cases:
        assert len(case.sentences) * case.sentences[0].options.rows == ROWS
        times = decoder.decode(case.sentences)
        assert times.steps in (costs.TARGET_LENGTH, costs.TARGET_LENGTH + 1), case.name  # a score feeds the end, too


def test_greedy_search_is_measured_beside_the_ways_that_are_asked_for(decoder):
    assert [case.name for case in costs.ways(decoder, "terminology")] == [
        "greedy",
        "beam 4, terminology (1 phrase)",
        "beam 4, terminology (3 phrases)",
    ]


def test_beams_decode_the_sentences_that_greedy_search_does(decoder, tmp_path):
    greedy, beam = costs.beams(decoder, [1, 4], 5, None)
    assert [sentence.source_ids for sentence in greedy.sentences] == [
        sentence.source_ids for sentence in beam.sentences
    ]
    assert len(beam.sentences) == 5
    assert decoder.decode(beam.sentences).reordered_rows > 0
    texts = tmp_path / "texts.tsv"
    texts.write_text("你好。\tHello.\n\tnothing\n我是学生。\n", encoding="utf-8")
    (case,) = costs.beams(decoder, [1], 3, texts)
    assert [len(sentence.source_ids) > 1 for sentence in case.sentences] == [True] * len(case.sentences)


@pytest.mark.parametrize("kind", cost_tables.COLUMNS_OF)
def test_a_table_has_a_row_for_each_case(kind, decoder):
    cases = {
        "steps": lambda: list(costs.steps(decoder, "cpu"))[:2],
        "ways": lambda: list(costs.ways(decoder, "4 alternatives")),
        "beams": lambda: list(costs.beams(decoder, [1, 4], 4, None)),
    }[kind]()
    *_, found = measure(cases, 2)
    lines = cost_tables.table(kind, cases, found)
    assert [line.split(" | ")[0] for line in lines[2:]] == [f"| {case.name}" for case in cases]
    assert len({line.count("|") for line in lines}) == 1
    assert lines[2].split(" | ")[-2] == "1.00"
    for case, record in zip(cases, cost_tables.record_of(cases, found), strict=True):
        assert (record["load"], record["rows"], len(record["rounds"])) == (case.name, ROWS, 2)
        assert 0 < record["runtime"] < record["step"]
        assert 0 < record["outside"] < 1
