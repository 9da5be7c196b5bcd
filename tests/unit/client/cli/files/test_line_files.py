"""Files of columns and of JSON objects."""

from __future__ import annotations

import json

import pytest
from unit.client.cli.files.translated import texts, translated

from translane_client.cli.text_files import FileError


@pytest.mark.parametrize(
    ("data", "columns", "out"),
    [
        (b"", (1,), b""),
        (b"a\n", (1,), b"a\tA\n"),
        (b"a\tb\tc\n", (3, 1), b"a\tb\tc\tC\tA\n"),
        (b"a\tb\r\n\r\n\nc\td", (2,), b"a\tb\tB\r\n\r\n\nc\td\tD"),
        ("\ufeffä\t\n\ufeffb\tx\n".encode(), (1,), "\ufeffä\t\tÄ\n\ufeffb\tx\t\ufeffB\n".encode()),
        ("a\x0bb\u2028c\r\r\n".encode(), (1,), "a\x0bb\u2028c\r\tA\x0bB\u2028C \r\n".encode()),
        (b"\t\n", (1, 2), b"\t\t\t\n"),
    ],
)
def test_columns_are_added_and_everything_else_stays(data: bytes, columns, out: bytes):
    assert translated("tsv", data, columns=columns) == out


def test_a_translation_stays_in_its_cell():
    assert translated("tsv", b"a\n", lambda _: "x\ty\r\nz") == b"a\tx y z\n"


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"a\tb\na\n", "f, line 2: 1 column, where --columns asks for column 2"),
        (b"a\tb\n\xff\tb\n", "f, line 2: not valid UTF-8"),
    ],
)
def test_a_line_without_the_column_is_named(data: bytes, problem: str):
    with pytest.raises(FileError, match=problem):
        translated("tsv", data, columns=(2,))


@pytest.mark.parametrize(
    ("data", "out"),
    [
        (b'{"text": "a"}\n', b'{"text": "a", "translation": "A"}\n'),
        (
            b'\xef\xbb\xbf{"n":1.50e3,"text":"a}"} \r\n',
            b'\xef\xbb\xbf{"n":1.50e3,"text":"a}", "translation": "A}"} \r\n',
        ),
        (b'\n  \n{"text":"a"}', b'\n  \n{"text":"a", "translation": "A"}'),
        (b'{"text":"\\u732b","x":{"text":{}}}\n', '{"text":"\\u732b","x":{"text":{}}, "translation": "猫"}\n'.encode()),
    ],
)
def test_a_field_is_added_and_everything_else_stays(data: bytes, out: bytes):
    assert translated("jsonl", data) == out
    for line in out.decode("utf-8-sig").splitlines():
        if line.strip():
            assert json.loads(line)["translation"] == json.loads(line)["text"].upper()


def test_fields_have_the_names_that_are_asked_for():
    out = translated("jsonl", b'{"q": "a", "text": "b"}\n', lambda _: 'x"\n', field="q", output_field="ü")
    assert json.loads(out) == {"q": "a", "text": "b", "ü": 'x"\n'}


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b'{"text": "a"}\n{"text": 3}\n', "f, line 2: the field 'text' is no text"),
        (b"{}", "f, line 1: the field 'text' is missing"),
        (b'{"text": "a", "translation": "b"}', "f, line 1: there is a field 'translation' already"),
        (b'["text"]', "f, line 1: a JSON object is needed"),
        (b'{"text": "a"', "f, line 1: no valid JSON"),
        (b"[" * 100_000, "f, line 1: no valid JSON"),
    ],
)
def test_a_line_without_the_field_is_named(data: bytes, problem: str):
    with pytest.raises(FileError, match=problem):
        translated("jsonl", data)


def test_a_lone_surrogate_is_left_to_the_client_to_refuse():
    assert texts("jsonl", b'{"text": "\\ud800"}') == ["\ud800"]
