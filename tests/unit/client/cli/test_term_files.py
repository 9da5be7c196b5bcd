"""Files of terms, through the command."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.client.fake_server import FakeServer, refuses

from helpers.client_command import Command
from translane.conversions import options_message
from translane.options import Term, checked_options
from translane_client.cli.inputs import FileError, read_terms

PHRASES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\t\r\n")).map(str.strip).filter(bool)


@pytest.mark.parametrize(
    ("content", "terms"),
    [
        (b"", []),
        ("猫\tcat\n狗\tdog\n".encode(), [("猫", "cat"), ("狗", "dog")]),
        ("\ufeff猫\tcat\r\n\r\n狗\tdog".encode(), [("猫", "cat"), ("狗", "dog")]),
        ("# animals\n\n  \n猫\tcat\n#狗\tdog\n".encode(), [("猫", "cat")]),
        ("猫\tcat\n猫\tkitty\n猫\tcat\n".encode(), [("猫", "cat"), ("猫", "kitty"), ("猫", "cat")]),
        ("  家 猫 \t house  cat \n".encode(), [("家 猫", "house  cat")]),
        (b"C#\tC sharp\n", [("C#", "C sharp")]),
        (b"a\tb\t\nc\td\tinflected , ignore-case\n", [("a", "b"), Term("c", "d", ignore_case=True, inflected=True)]),
    ],
)
def test_a_line_is_a_term(server: FakeServer, command: Command, tmp_path: Path, content: bytes, terms):
    path = tmp_path / "terms.tsv"
    path.write_bytes(content)
    assert command("translate", "a", "--terms", str(path)) == 0
    assert list(server.requests[0].options.terminology) == list(
        options_message(checked_options({"terminology": terms})).terminology
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "猫 cat".encode(),
            ", line 3: no tab, where one is needed between source and target, and one before flags",
        ),
        (
            b"a\tb\tinflected\tx",
            ", line 3: 3 tabs, where one is needed between source and target, and one before flags",
        ),
        ("猫\tcat\tkitty".encode(), ", line 3: 'kitty' is not a flag; there is ignore-case and inflected"),
        (b"\tcat", ", line 3: the source is empty"),
        ("猫\t".encode(), ", line 3: the target is empty"),
        ("猫\t  ".encode(), ", line 3: the target is empty"),
        (b"\xff\tcat", ", line 3: not valid UTF-8 (byte 1 of the line)"),
    ],
)
def test_a_line_that_is_no_term_is_named(server: FakeServer, command: Command, tmp_path: Path, content, message: str):
    path = tmp_path / "terms.tsv"
    path.write_bytes("# animals\n狗\tdog\n".encode() + content + b"\n")
    assert command("translate", "a", "--terms", str(path)) == 1
    assert command.err == f"translane translate: {path}{message}\n"
    assert server.requests == []


@pytest.mark.parametrize(
    ("field", "place"),
    [
        ("options.terminology[1].target", "{path}, line 4, target"),
        ("options.terminology[0]", "{path}, line 2"),
        ("options.terminology[7].source", "{path}, source"),
        ("options.terminology", "--terms"),
    ],
)
def test_the_line_of_a_term_that_the_server_refuses_is_named(
    server: FakeServer, command: Command, tmp_path, field, place
):
    path = tmp_path / "terms.tsv"
    path.write_text("# animals\ncat\tKatze\n\ndog\tHund\n")
    server.always = refuses((field, "is too long"))
    assert command("translate", "a", "--terms", str(path)) == 1
    assert command.err == f"translane translate: {place.format(path=path)}: is too long\n"


def test_a_file_that_is_not_there_is_named(server: FakeServer, command: Command, tmp_path: Path):
    assert command("translate", "a", "--terms", str(tmp_path / "none.tsv")) == 1
    assert command.err == f"translane translate: {tmp_path / 'none.tsv'}: No such file or directory\n"
    assert server.requests == []


@given(st.lists(st.tuples(PHRASES.filter(lambda text: text[0] not in "#\ufeff"), PHRASES)))
def test_what_is_written_is_read_back(tmp_path_factory, terms: list[tuple[str, str]]):
    path = tmp_path_factory.mktemp("terms") / "terms.tsv"
    path.write_text("".join(f"{source}\t{target}\n" for source, target in terms), encoding="utf-8", newline="")
    read = read_terms(path)
    assert [(term.source, term.target) for term in read.terms] == terms
    assert read.lines == list(range(1, len(terms) + 1))


@given(st.binary())
def test_any_bytes_are_terms_or_a_sentence(tmp_path_factory, content: bytes):
    path = tmp_path_factory.mktemp("terms") / "terms.tsv"
    path.write_bytes(content)
    try:
        terms, problem = read_terms(path).terms, ""
    except FileError as error:
        terms, problem = [], str(error)
    assert all(term.source and term.target for term in terms)
    assert not problem or problem.startswith(f"{path}, line ")
