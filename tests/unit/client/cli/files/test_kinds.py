"""Which kind a file is, what travels of it, and which flags fit."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.client.fake_server import FakeServer, refuses, texts_of

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


@pytest.mark.parametrize(
    ("argv", "named"),
    [(["-i", "x.TSV"], "batch x.TSV "), (["-i", "x.jsonl"], "batch x.jsonl "), (["--file-format=tsv"], "batch FILE ")],
)
def test_corpora_are_refused_with_the_command_that_translates_them(
    server: FakeServer, command: Command, capsys, argv, named: str
):
    with pytest.raises(SystemExit):
        command("translate", *argv)
    assert f"translane {named}-o FOLDER --model NAME --server {server.address}" in capsys.readouterr().err
    assert server.requests == []


def test_a_file_whose_lines_are_no_texts_is_refused(server: FakeServer, command: Command, tmp_path: Path):
    (tmp_path / "x.json").write_text('{"text": "a"}\n', encoding="utf-8")
    files = ("-i", str(tmp_path / "x.json"), "-o", str(tmp_path / "y.json"))
    with pytest.raises(SystemExit):
        command("translate", *files)
    assert (server.requests, (tmp_path / "y.json").exists()) == ([], False)
    assert command("translate", *files, "--file-format=lines") == 0


def test_all_kinds_are_among_them():
    assert {kind_of(Path(name)) for name in FILES} == set(KINDS) - {"tsv", "jsonl"}


def test_a_flag_says_the_kind_of_standard_input(server: FakeServer, command: Command):
    assert command("translate", "--file-format", "markdown", stdin=b"# a\n") == 0
    assert server.requests[0].format == pb.FORMAT_MARKDOWN


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


def test_a_refused_text_names_the_line_of_its_part(server: FakeServer, command: Command, tmp_path: Path):
    source = tmp_path / "x.po"
    source.write_text(PO)
    server.always = refuses(("texts[1]", "too long"))
    assert command("translate", "-i", str(source), "-o", str(tmp_path / "out")) == 1
    assert command.err == f"translane: {source}, line 9: too long; 0 texts were translated\n"


def test_a_document_that_cannot_be_read_leaves_nothing(command: Command, tmp_path: Path):
    source = tmp_path / "x.vtt"
    source.write_text("no")
    assert command("translate", "-i", str(source), "-o", str(tmp_path / "out")) == 1
    assert command.err.startswith(f"translane: {source}: no WebVTT")
    assert [each.name for each in tmp_path.iterdir()] == ["x.vtt"]


def test_progress_counts_texts(command: Command, tmp_path: Path):
    source = tmp_path / "x.srt"
    source.write_text("1\n00:00:01,000 --> 00:00:02,000\na\n\n" * 100)
    command.stderr = Terminal()
    assert command("translate", "-i", str(source), "-o", str(tmp_path / "out")) == 0
    final = command.err.rsplit("\r", 1)[1]
    assert "100 sentences" in final
    assert "100%" in final
