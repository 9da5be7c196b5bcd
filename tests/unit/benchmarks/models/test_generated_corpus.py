"""The generated corpus, and what stands in the files of its translations."""

import random

import pytest

from benchmarks.models.generated_corpus import corpus_of, outputs_of, records_of


def test_records_are_as_many_and_as_different_as_asked_for():
    records = records_of(5000, 300, random.Random(1))
    assert len(records) == 5000
    assert len(set(records) - {""}) == 300
    assert 1 < records.count("") < 500
    assert records_of(5000, 300, random.Random(1)) == records
    with pytest.raises(SystemExit, match="can be different"):
        records_of(5, 6, random.Random(1))


def test_files_hold_the_records_in_order(tmp_path):
    records = records_of(100, 30, random.Random(1))
    corpus = corpus_of(tmp_path / "in", records)
    (corpus / "b.jsonl").write_text(
        (corpus / "b.jsonl").read_text(encoding="utf-8").replace('"text"', '"translation"'), encoding="utf-8"
    )
    assert list(outputs_of(corpus)) == records
