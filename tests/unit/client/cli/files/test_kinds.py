"""Which kind a file is, what travels of it, and which flags fit."""

from __future__ import annotations

import io
import json
from pathlib import Path

import grpc
import pytest
from unit.client.fake_server import FakeServer, bad_fields, fails, reason, texts_of

from helpers.client_command import Command, Terminal
from translane.v1 import translation_pb2 as pb
from translane_client.cli.files.kinds import KINDS, kind_of

PO = r"""msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\n"

msgid "a"
msgstr ""

msgid "b"
msgstr ""
"""
XLIFF = '<xliff version="1.2"><file><trans-unit id="1"><source>a</source></trans-unit></file></xliff>'
FILES = {
    "x.txt": ("a\n", ["a"], pb.FORMAT_UNSPECIFIED),
    "x.TXT": ("a\n", ["a"], pb.FORMAT_UNSPECIFIED),
    "x": ("a\n", ["a"], pb.FORMAT_UNSPECIFIED),
    "x.tsv": ("a\tb\n", ["a"], pb.FORMAT_UNSPECIFIED),
    "x.jsonl": ('{"text": "a"}\n', ["a"], pb.FORMAT_UNSPECIFIED),
    "x.srt": ("1\n00:00:01,000 --> 00:00:02,000\na\n", ["a"], pb.FORMAT_UNSPECIFIED),
    "x.vtt": ("WEBVTT\n\n00:01.000 --> 00:02.000\na\n", ["a"], pb.FORMAT_UNSPECIFIED),
    "x.po": (PO, ["a", "b"], pb.FORMAT_UNSPECIFIED),
    "x.Xlf": (XLIFF, ["a"], pb.FORMAT_XLIFF),
    "x.xliff": (XLIFF, ["a"], pb.FORMAT_XLIFF),
    "x.html": ("<p>a</p>\n", ["<p>a</p>"], pb.FORMAT_HTML),
    "x.htm": ("<p>a</p>\n", ["<p>a</p>"], pb.FORMAT_HTML),
    "x.md": ("# a\n", ["# a"], pb.FORMAT_MARKDOWN),
}


def xliff_safe(request, context):
    """Translations without markup."""
    return pb.TranslateResponse(
        translations=[pb.Translation(hypotheses=[pb.Hypothesis(text=f"({text})")]) for text in request.texts]
    )


@pytest.mark.parametrize("name", FILES)
def test_the_extension_says_the_kind(server: FakeServer, command: Command, tmp_path: Path, name: str):
    server.always = xliff_safe
    data, texts, form = FILES[name]
    source, target = tmp_path / name, tmp_path / "out"
    source.write_text(data)
    assert command("translate", "-i", str(source), "-o", str(target)) == 0
    assert [text for request in server.requests for text in texts_of(request)] == texts
    assert {request.format for request in server.requests} == {form}
    assert f"({texts[0]})" in target.read_text()
    assert command("translate", "-i", str(source)) == 0
    assert command.stdout.getvalue() == target.read_bytes()


def test_all_kinds_are_among_them():
    assert {kind_of(Path(name)) for name in FILES} == set(KINDS)


def test_a_flag_says_the_kind_of_standard_input(command: Command):
    assert command("translate", "--file-format", "jsonl", stdin=b'{"text": "a"}\n') == 0
    assert json.loads(command.out)["translation"] == "<a>"


@pytest.mark.parametrize(
    ("flags", "form"),
    [
        ([], pb.FORMAT_UNSPECIFIED),
        (["--format", "text"], pb.FORMAT_UNSPECIFIED),
        (["--format", "html"], pb.FORMAT_HTML),
        (["--format", "markdown"], pb.FORMAT_MARKDOWN),
        (["--format", "xliff", "--stream"], pb.FORMAT_XLIFF),
    ],
)
def test_the_format_of_texts_travels(server: FakeServer, command: Command, flags, form):
    assert command("translate", "a", *flags) == 0
    assert server.requests[0].format == form


def test_the_tags_of_subtitles_are_preserved_beside_what_the_user_says(server: FakeServer, command: Command):
    data = FILES["x.srt"][0].encode()
    assert command("translate", "--file-format", "srt", "--preserve", "x+", stdin=data) == 0
    assert list(server.requests[0].options.preserve) == ["x+", r"<[^<>]*>", r"\{\\[^{}]*\}"]


def test_columns_and_fields_are_chosen_by_flags(command: Command):
    assert command("translate", "--file-format", "tsv", "--columns", "2,1", stdin=b"a\tb\n") == 0
    flags = ["--file-format", "jsonl", "--field", "q", "--output-field", "r"]
    assert command("translate", *flags, stdin=b'{"q": "a"}\n') == 0
    assert command.out == 'a\tb\t<b>\t<a>\n{"q": "a", "r": "<a>"}\n'


def test_a_refused_text_names_the_line_of_its_part(server: FakeServer, command: Command, tmp_path: Path):
    source = tmp_path / "x.po"
    source.write_text(PO)
    server.always = fails(
        grpc.StatusCode.INVALID_ARGUMENT, "no", reason("INVALID_FIELD"), bad_fields(("texts[1]", "too long"))
    )
    assert command("translate", "-i", str(source), "-o", str(tmp_path / "out")) == 1
    assert command.err == f"translane: {source}, line 9: too long; 0 texts were translated\n"


def test_a_document_that_cannot_be_read_leaves_nothing(command: Command, tmp_path: Path):
    source = tmp_path / "x.vtt"
    source.write_text("no")
    assert command("translate", "-i", str(source), "-o", str(tmp_path / "out")) == 1
    assert command.err.startswith(f"translane: {source}: no WebVTT")
    assert [each.name for each in tmp_path.iterdir()] == ["x.vtt"]


def test_progress_counts_texts(command: Command, tmp_path: Path):
    source = tmp_path / "x.tsv"
    source.write_text("a\tb\n" * 100)
    command.stderr = Terminal()
    assert command("translate", "-i", str(source), "-o", str(tmp_path / "out"), "--columns", "1,2") == 0
    final = command.err.rsplit("\r", 1)[1]
    assert "200 sentences" in final
    assert "100%" in final


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        (
            ["--file-format", "doc"],
            "one of lines, tsv, jsonl, srt, vtt, po, xliff, html, markdown is needed, not 'doc'",
        ),
        (["--format", "doc"], "one of text, html, markdown, xliff is needed, not 'doc'"),
        (["--columns", "0"], "a positive integer is needed, not '0'"),
        (["--columns", "1,"], "a positive integer is needed, not ''"),
        (["--columns", "1"], "--columns is not about files of the kind lines"),
        (["--file-format", "tsv", "--all"], "--all is not about files of the kind tsv"),
        (["--file-format", "srt", "--field", "a"], "--field is not about files of the kind srt"),
        (["a", "--columns", "1"], "--columns is about files: TEXT excludes it"),
        (["--file-format", "tsv", "--json"], "a file of the kind tsv takes the text of one hypothesis"),
        (["--file-format", "po", "--nbest", "2"], "a file of the kind po takes the text of one hypothesis"),
        (["--file-format", "po", "--quality"], "a file of the kind po takes the text of one hypothesis"),
        (["--file-format", "po", "--stream"], "--stream writes lines, and a file of the kind po is not written so"),
        (["--file-format", "html", "--format", "xliff"], "--format xliff does not fit a file of the kind html"),
    ],
)
def test_wrong_usage(server: FakeServer, command: Command, capsys, argv, problem: str):
    with pytest.raises(SystemExit) as caught:
        command("translate", *argv)
    assert caught.value.code == 2
    assert problem in capsys.readouterr().err
    assert server.requests == []


class CountedLines(io.BytesIO):
    """Makes its lines up, and notes how many were read before the first was written."""

    def __init__(self, line: bytes, count: int) -> None:
        self._line = line
        self.left = count
        self.out = 0
        self.furthest = 0
        self.read_lines = 0

    def readline(self, size: int | None = -1, /) -> bytes:
        if not self.left:
            return b""
        self.left -= 1
        self.read_lines += 1
        self.furthest = max(self.furthest, self.read_lines - self.out)
        return self._line

    def note(self, data: bytes) -> None:
        self.out += data.count(b"\n")


@pytest.mark.parametrize(("kind", "line"), [("tsv", b"a\tb\n"), ("jsonl", b'{"text": "a"}\n'), ("tsv", b"\n")])
def test_memory_is_bounded_over_many_lines(command: Command, kind: str, line: bytes):
    stdin = CountedLines(line, 20_000)

    class Output(io.BytesIO):
        def write(self, data, /) -> int:
            stdin.note(bytes(data))
            return len(data)

    command.stdout = Output()
    flags = ["--file-format", kind, "--batch-size", "100", "--concurrency", "3"]
    assert command("translate", *flags, stdin=stdin) == 0
    assert stdin.out == 20_000
    assert stdin.furthest <= 301
