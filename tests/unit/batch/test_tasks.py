"""Buckets, keys and tasks."""

from __future__ import annotations

from pathlib import Path

import pytest

from translane_batch import reading
from translane_batch.answers import Answer, decoded, encoded, line_of
from translane_batch.errors import ResumeError
from translane_batch.reading import numbers_in, sources_of, write_sources
from translane_batch.tasks import MOST_BUCKETS, Task, buckets_for, key_of
from translane_batch.work_folder import Plan, WorkFolder


def test_buckets_are_as_many_as_the_text_needs() -> None:
    assert [buckets_for(size) for size in (0, 1, 16 << 20, (16 << 20) + 1, 6 * 10**9, 10**12)] == [
        1, 1, 1, 2, 358, MOST_BUCKETS,
    ]  # fmt: skip


def test_keys_spread_sources_evenly_and_stay_as_they_are() -> None:
    keys = [key_of(line_of(f"source {number}"), 16) for number in range(8000)]
    counts = [sum(key.bucket == bucket for key in keys) for bucket in range(16)]
    assert min(counts) > 400
    assert max(counts) < 600
    assert len({(key.bucket, key.check) for key in keys}) == 8000
    # A run of another version goes on with these.
    assert key_of(line_of("你好"), 512) == key_of('"你好"\n'.encode(), 512)


def test_a_bucket_is_cut_by_number_and_by_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = WorkFolder(tmp_path)
    work.clear()
    lines = [line_of(text) for text in ("a", "b", "a", "c", "long" * 5, "b", "d")]
    work.occurrences(3).write_bytes(b"".join(lines))
    monkeypatch.setattr(reading, "TASK_BYTES", 20)
    found = write_sources(work, 3, 2)
    assert [sources_of(work, task) for task in found] == [lines[0:2], lines[3:4], lines[4:5], lines[6:7]]
    assert found == (Task(3, 0, 2), Task(3, 1, 1), Task(3, 2, 1), Task(3, 3, 1))
    assert list(numbers_in(work.order(3).read_bytes())) == [0, 1, 0, 2, 3, 1, 4]
    assert not work.occurrences(3).exists()


def test_an_answer_is_a_line() -> None:
    for answer in (Answer('é\n\u2028"'), Answer(""), Answer("", "refused", "it is long"), Answer("x", "copy")):
        line = encoded(answer)
        assert line.count(b"\n") == 1
        assert line.endswith(b"\n")
        assert decoded(line) == answer
    for wrong in (b"{}\n", b"[]\n", b'["a", "b"]\n', b"[1]\n", b"\n", b'["a", "b", 3]\n'):
        with pytest.raises(ValueError):
            decoded(wrong)


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    work = WorkFolder(tmp_path / "work")
    identity = {"corpus": [["a", 1, 2]], "x": (1, 2)}
    plan = Plan(identity, 7, ((Task(0, 0, 3), Task(0, 1, 1)), (), (Task(2, 0, 2),)))
    assert work.plan(identity) is None
    work.begin(plan)
    found = work.plan(identity)
    assert found is not None
    assert (found.buckets, found.texts, found.sources) == (plan.buckets, 7, 6)
    assert [task.name for task in found.tasks] == ["0000-000000", "0000-000001", "0002-000000"]
    for content, sentence in [
        (b'{"format": "x"}', "not the state of a run of this version"),
        (b'{"format": "translane-batch-run", "version": 1}', "it is damaged"),
    ]:
        (tmp_path / "work" / "run.json").write_bytes(content)
        with pytest.raises(ResumeError, match=sentence):
            work.plan(identity)
