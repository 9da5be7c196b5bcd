"""Files of lines: what is read of them, and what is written."""

import gzip
import io
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from translane_batch import records as line_files
from translane_batch.records import (
    MOST_RECORDS,
    Answer,
    ColumnFiles,
    LineFiles,
    ObjectFiles,
    Record,
)
from translane_batch.settings import BatchError

OBJECTS = ObjectFiles("text", "translation")


def read(path: Path, files: LineFiles) -> list[Record]:
    return [record for block in files.blocks(path, whole=False) for record in block.records]


def written(path: Path, files: LineFiles, answers: Sequence[Answer]) -> bytes:
    """What is written for the file at `path` with these answers, unzipped."""
    file, left = io.BytesIO(), list(answers)
    with files.output(path, file) as write:
        for block in files.blocks(path, whole=True):
            write(block, left[: len(block.records)])
            del left[: len(block.records)]
    assert not left
    content = file.getvalue()
    if path.suffix != ".gz":
        return content
    assert content[4:8] == bytes(4)  # no time, so that equal outputs are equal files
    return gzip.decompress(content)


def file_of(folder: Path, content: bytes, name: str = "a.txt") -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return path


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_lines_end_with_line_feeds_alone(tmp_path, name):
    path = file_of(tmp_path, "\ufeff一\r\n\n \t \r\n二\u2028三\x0b四\n五\rf".encode(), name)
    assert read(path, LineFiles()) == [
        Record("一"),
        Record(""),
        Record(""),
        Record("二\u2028三\x0b四"),
        Record("五\rf"),
    ]
    answers = [Answer("one"), Answer(""), Answer(""), Answer("two\r\nthree\n four\rfive"), Answer("x")]
    assert written(path, LineFiles(), answers) == b"one\n\n\ntwo three  four five\nx\n"


@given(st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=9), max_size=9))
def test_each_line_is_a_record(tmp_path_factory, lines):
    path = tmp_path_factory.mktemp("lines") / "a.txt"
    path.write_bytes("".join(f"{line}\n" for line in ["first", *lines]).encode())
    sources = [record.source for record in read(path, LineFiles())]
    assert sources == ["first", *(line if line.strip() else "" for line in lines)]


def test_blocks_are_counted_from_one_and_bounded(tmp_path, monkeypatch):
    path = file_of(tmp_path, b"line\n" * (2 * MOST_RECORDS + 1))
    blocks = list(LineFiles().blocks(path, whole=True))
    assert [(block.first, len(block.records)) for block in blocks] == [
        (1, MOST_RECORDS),
        (MOST_RECORDS + 1, MOST_RECORDS),
        (2 * MOST_RECORDS + 1, 1),
    ]
    monkeypatch.setattr(line_files, "_BLOCK_BYTES", 8)
    assert {len(block.records) for block in LineFiles().blocks(path, whole=True)} == {2, 1}


def test_a_line_that_never_ends_is_no_burden(tmp_path, monkeypatch):
    monkeypatch.setattr(line_files, "LONGEST_LINE", 8)
    path = file_of(tmp_path, b"12345678\n123456789\nabc\n" + b"x" * 100)
    records = read(path, LineFiles())
    assert [record.source for record in records] == ["12345678", "", "abc", ""]
    assert [bool(record.problem) for record in records] == [False, True, False, True]
    path = file_of(tmp_path, b'{"text": "a"}\n' + b"x" * 100 + b"\n", "a.jsonl")
    monkeypatch.setattr(line_files, "LONGEST_LINE", 20)
    assert written(path, OBJECTS, [Answer("b"), Answer("", "unreadable")]).splitlines() == [
        b'{"text": "a", "translation": "b"}',
        b'{"translation": null}',
    ]


@pytest.mark.parametrize(
    ("files", "content", "sentence"),
    [
        (LineFiles(), b"\xff\xfea\x00\n", "line 1: it is not UTF-8, from its byte 1 on"),
        (ColumnFiles(3), b"a\tb\n", "line 1: it has 2 columns, and --column is 3"),
        (ColumnFiles(2), b"a\n", "line 1: it has 1 column, and --column is 2"),
        (OBJECTS, b"{\n", "line 1: it is not JSON"),
        (OBJECTS, b"[1]\n", "line 1: it is not a JSON object"),
        (OBJECTS, b'{"src": "a"}\n', "line 1: it has no field 'text'; --field names another"),
        (OBJECTS, b'{"text": 1}\n', "line 1: its field 'text' is not a text"),
        (OBJECTS, b'{"text": "a", "translation": ""}\n', "'translation' already; --output-field names another"),
        (OBJECTS, b'{"text": "\\ud800"}\n', "line 1: its field 'text' holds half a character"),
        (OBJECTS, b"[" * 100_000 + b"\n", "line 1: it is not JSON"),
    ],
)
def test_a_first_record_that_is_wrong_is_refused_and_a_later_one_noted(tmp_path, files, content, sentence):
    path = file_of(tmp_path, content, "a.x")
    with pytest.raises(BatchError, match=sentence.replace("(", r"\(")) as caught:
        read(path, files)
    assert str(caught.value).startswith(str(path))
    good = b'{"text": "good"}' if files is OBJECTS else b"good\tgood\tgood"
    path = file_of(tmp_path, good + b"\n" + content + good + b"\n", "a.x")
    first, second, third = read(path, files)
    assert not first.problem
    assert second.source == ""
    assert second.problem in sentence or sentence.endswith(second.problem) or second.problem.endswith(sentence)
    assert third == first


def test_broken_gzip_is_told_in_a_sentence(tmp_path):
    whole = gzip.compress(b"".join(b"line %d\n" % number for number in range(5000)))
    broken = {
        "after line": whole[: len(whole) // 2],
        "after line 0": b"no gzip",
        "broken": whole[:60] + b"\xff" * 30 + whole[90:],
    }
    for sentence, content in broken.items():
        (tmp_path / "a.txt.gz").write_bytes(content)
        with pytest.raises(BatchError, match=sentence):
            read(tmp_path / "a.txt.gz", LineFiles())


def test_columns_keep_their_line(tmp_path):
    path = file_of(tmp_path, b"1\tone\tx\r\n\n2\t \n3\n\xff\t\xff\n", "a.tsv")
    assert [record.source for record in read(path, ColumnFiles(2))] == ["one", "", "", "", ""]
    answers = [Answer("ei\tn\ns"), Answer(""), Answer(""), Answer("", "unreadable"), Answer("", "unreadable")]
    assert written(path, ColumnFiles(2), answers) == b"1\tone\tx\tei n s\n\n2\t \t\n3\t\n\xff\t\xff\t\n"


def test_objects_keep_their_bytes(tmp_path):
    lines = [
        b'  {"id": 1.00, "text": "a", "x": {"y": [1e3]}}  ',
        b'{"text": "b\\nc" }',
        b"",
        b'{"text": null}',
        b"{}",
        b'{"text": "d", "translation": 7}',
        b"[]",
        b"\xff",
    ]
    path = file_of(tmp_path, b"\n".join(lines), "a.jsonl")
    answers = [Answer("é\n"), Answer("kept", "low quality"), Answer(""), Answer("")]
    answers += [Answer("", "unreadable")] * 4
    found = written(path, OBJECTS, answers).splitlines()
    assert found == [
        '{"id": 1.00, "text": "a", "x": {"y": [1e3]}, "translation": "é\\n"}'.encode(),
        b'{"text": "b\\nc", "translation": "kept"}',
        b"",
        b'{"text": null, "translation": ""}',
        b'{"translation": null}',
        lines[5],
        b'{"translation": null}',
        b'{"translation": null}',
    ]
    assert all(isinstance(json.loads(line), dict) for line in found if line)


def test_several_translations_are_a_list(tmp_path):
    path = file_of(tmp_path, b'{"text": "a"}\n{"text": "b"}\n{"text": null}\n{"text": "c"}\n', "a.jsonl")
    answers = [Answer("x", others=("y", "z")), Answer("", "refused"), Answer(""), Answer("w")]
    assert [Answer.decoded(answer.encoded) for answer in answers] == [
        Answer("x", "", "", ["y", "z"]), *answers[1:],
    ]  # fmt: skip
    lines = written(path, ObjectFiles("text", "translation", True), answers).splitlines()
    assert [json.loads(line)["translation"] for line in lines] == [
        ["x", "y", "z"], None, [], ["w"],
    ]  # fmt: skip


def test_a_named_pipe_and_a_missing_file_are_refused(tmp_path):
    with pytest.raises(BatchError, match="No such file"):
        read(tmp_path / "no.txt", LineFiles())
    with pytest.raises(BatchError, match="it is a folder"):
        read(tmp_path, LineFiles())
