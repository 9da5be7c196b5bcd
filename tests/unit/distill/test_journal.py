"""The file of the teacher's outputs: what a kill leaves, what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from translane_export.distill.errors import DistillError
from translane_export.distill.journal import Identity, Journal, Output, Record
from translane_export.train.errors import ResumeError

IDENTITY = Identity("ab", "zh", "en", 4, 1.0, 1, 128)
RECORDS = (
    Record(1, "aa", 3, (Output("I have a cat.", 5), Output("A line\u2028with a break.", 6))),
    Record(2, "bb", 0, (), "no pieces"),
    Record(9, "cc", 2, (Output("", 0),)),
)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    journal = Journal(tmp_path / "outputs.jsonl", IDENTITY)
    journal.start()
    return journal


def test_records_come_back_as_they_were(journal: Journal) -> None:
    journal.append(RECORDS[:2])
    journal.append(RECORDS[2:])
    assert tuple(journal.records()) == RECORDS


def test_whatever_part_of_the_file_a_kill_leaves_the_whole_records_of_it_stay(journal: Journal) -> None:
    journal.append(RECORDS)
    whole = journal.path.read_bytes()
    for size in range(len(whole)):
        journal.path.write_bytes(whole[:size])
        journal.repair()
        found = tuple(journal.records())
        assert found == RECORDS[: len(found)]
        assert len(found) == max(0, whole[:size].count(b"\n") - 1)
        journal.append(RECORDS[len(found) :])
        assert journal.path.read_bytes() == whole


@pytest.mark.parametrize(
    "line",
    [
        *(b"", b"\xff", b"[]", b"{}", b"null", b"nonsense", b"[" * 100_000),
        b'{"line": 1, "source": "aa", "pieces": 3, "outputs": []}',
        b'{"line": 1, "source": "aa", "pieces": 3, "outputs": [[1, 2]]}',
        b'{"line": 1, "source": "aa", "pieces": 3, "outputs": [["a"]]}',
        b'{"line": true, "source": "aa", "pieces": 1, "left_out": "x"}',
    ],
)
def test_a_line_that_is_no_record_is_named(journal: Journal, line: bytes) -> None:
    journal.append(RECORDS[:1])
    with journal.path.open("ab") as file:
        file.write(line + b"\n")
    journal.repair()
    with pytest.raises(DistillError, match=r"outputs\.jsonl:3: the line is no record of outputs"):
        list(journal.records())


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("teacher", "cd", "teacher was 'ab', is 'cd'"),
        ("beam_size", 1, "beam_size was 4, is 1"),
        ("nbest", 2, "nbest was 1, is 2"),
        ("target_language", "de", "target_language was 'en', is 'de'"),
    ],
)
def test_outputs_of_other_settings_are_not_continued(journal: Journal, name: str, value: Any, words: str) -> None:
    with pytest.raises(ResumeError, match=words):
        Journal(journal.path, replace(IDENTITY, **{name: value})).repair()


@pytest.mark.parametrize("content", [b"{}\n", b"\n", b"\0\0\n", b'{"format": "other", "version": 1}\n', b"[1]\n"])
def test_another_file_is_not_taken_for_outputs(journal: Journal, content: bytes) -> None:
    journal.path.write_bytes(content)
    with pytest.raises(ResumeError, match="its first line is not that of a file of outputs"):
        journal.repair()
    assert journal.path.read_bytes() == content


def test_one_run_at_a_time_writes(journal: Journal) -> None:
    with journal.held(), pytest.raises(ResumeError, match="another run writes to it"), journal.held():
        pass
    with journal.held():
        pass
