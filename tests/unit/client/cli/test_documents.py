"""`translane translate` of files that the server translates whole."""

import os
import stat

import pytest

from fakes.translation_server import BROKEN, UNAVAILABLE, answer_to, refuses
from helpers.client_command import Terminal
from translane.v1 import translation_pb2 as pb

KINDS = {
    "x.srt": "application/x-subrip",
    "x.vtt": "text/vtt",
    "x.po": "text/x-gettext-translation",
    "x.pot": "text/x-gettext-translation",
    "x.Xlf": "application/xliff+xml",
    "x.xliff": "application/xliff+xml",
    "x.sdlxliff": "application/xliff+xml",
    "x.html": "text/html",
    "x.htm": "text/html",
    "x.md": "text/markdown",
    "x.markdown": "text/markdown",
}
DATA = b"\xef\xbb\xbfa\xff\r\n\x00b"


@pytest.fixture
def source(tmp_path):
    """A file that the server translates whole."""
    path = tmp_path / "x.md"
    path.write_text("a")
    return path


@pytest.fixture
def translate(command, source):
    """Translates it, to a file beside it or to standard output, and returns the exit code."""

    def run(target: str = "", *flags: str):
        where = ["-o", str(source.parent / target)] if target else []
        return command("translate", "-i", str(source), *where, *flags)

    return run


@pytest.mark.parametrize("name", KINDS)
def test_the_extension_says_the_kind(server, command, tmp_path, name):
    source, target = tmp_path / name, tmp_path / "out"
    source.write_bytes(DATA)
    assert command("translate", "-i", str(source), "-o", str(target), "--beam-size=3", "--preserve=x") == 0
    assert target.read_bytes() == DATA.upper()
    assert command("translate", "-i", str(source)) == 0
    assert command.stdout.getvalue() == DATA.upper()
    options = pb.DecodingOptions(beam_size=3, preserve=["x"])
    assert server.requests[0] == pb.TranslateDocumentRequest(content=DATA, mime_type=KINDS[name], options=options)


@pytest.mark.parametrize("name", ["x.txt", "x", "x.log"])
def test_other_files_are_lines(server, command, tmp_path, name):
    (tmp_path / name).write_text("a\n")
    assert command("translate", "-i", str(tmp_path / name)) == 0
    assert isinstance(server.requests[0], pb.TranslateRequest)


@pytest.mark.parametrize(
    ("argv", "named"),
    [(["-i", "x.TSV"], "batch x.TSV "), (["-i", "x.jsonl"], "batch x.jsonl "), (["--file-format=tsv"], "batch FILE ")],
)
def test_corpora_are_refused_with_the_command_that_translates_them(server, command, argv, named):
    assert command("translate", *argv) == 2
    assert f"translane {named}-o FOLDER --model NAME --server {server.address}" in command.err
    assert server.requests == []


def test_a_file_whose_lines_are_no_texts_is_refused(server, command, tmp_path):
    (tmp_path / "x.json").write_text('{"text": "a"}\n', encoding="utf-8")
    files = ("-i", str(tmp_path / "x.json"), "-o", str(tmp_path / "y.json"))
    assert command("translate", *files) == 2
    assert (server.requests, (tmp_path / "y.json").exists()) == ([], False)
    assert command("translate", *files, "--file-format=lines") == 0


def test_a_flag_says_the_kind_of_standard_input(server, command):
    assert command("translate", "--file-format", "po", "--all", "--priority=2", "--model=m", stdin=b"a") == 0
    asked = server.requests[0]
    assert (asked.mime_type, asked.replace_translations) == (KINDS["x.po"], True)
    assert (asked.priority, asked.model) == (2, "m")


@pytest.mark.parametrize(
    ("flags", "form"),
    [
        ([], pb.FORMAT_UNSPECIFIED),
        (["--format", "text"], pb.FORMAT_UNSPECIFIED),
        (["--format", "html"], pb.FORMAT_HTML),
        (["--format", "xliff", "--stream"], pb.FORMAT_XLIFF),
    ],
)
def test_the_format_of_texts_travels(server, command, flags, form):
    assert command("translate", "a", *flags) == 0
    assert server.requests[0].format == form


def test_a_file_is_replaced_when_the_translation_is_whole(server, command, source, tmp_path):
    link = tmp_path / "link.md"
    source.chmod(0o640)
    link.symlink_to(source)
    server.always = BROKEN
    assert command("translate", "-i", str(link), "-o", str(link)) == 1
    assert source.read_text() == "a"
    server.always = None
    server.script.append(UNAVAILABLE)
    assert command("translate", "-i", str(link), "-o", str(link)) == 0
    assert source.read_text() == "A"
    assert stat.S_IMODE(source.stat().st_mode) == 0o640
    assert link.is_symlink()
    assert {each.name for each in tmp_path.iterdir()} == {"link.md", "x.md"}


def test_no_other_file_is_touched(translate, source, tmp_path):
    other, link = tmp_path / "other", tmp_path / "x.md.part"
    other.write_text("b")
    link.symlink_to(other)
    assert translate(source.name) == 0
    assert (source.read_text(), other.read_text(), source.is_symlink(), link.is_symlink()) == ("A", "b", False, True)


@pytest.mark.parametrize("target", [".", "missing/y.md", "x.md/y.md"])
def test_a_file_that_cannot_be_written_costs_no_translation(server, command, translate, tmp_path, target):
    assert translate(target) == 1
    assert command.err.startswith(f"translane translate: {tmp_path / target}: ")
    assert server.requests == []


def test_a_link_to_a_pipe_is_written(translate, tmp_path):
    """As /dev/stdout is one, and what a shell makes of >(…)."""
    reading, writing = os.pipe()
    (tmp_path / "y.md").symlink_to(f"/dev/fd/{writing}")
    assert translate("y.md") == 0
    os.close(writing)
    with os.fdopen(reading) as pipe:
        assert pipe.read() == "A"


def test_a_link_to_itself_is_replaced(translate, tmp_path):
    (tmp_path / "y.md").symlink_to(tmp_path / "y.md")
    assert translate("y.md") == 0
    assert (tmp_path / "y.md").read_text() == "A"


@pytest.mark.parametrize("missing", ["content", "end"])
def test_a_document_that_is_not_whole_is_an_error(server, command, translate, tmp_path, missing):
    def part(request, context):
        return [each for each in answer_to(request) if each.WhichOneof("event") != missing]

    server.always = part
    assert translate("y.md") == 1
    assert command.err.startswith("translane translate: the ")
    assert not (tmp_path / "y.md").exists()


def test_faults_name_the_file_the_line_and_the_flag(server, command, translate, source):
    server.always = refuses(("content", "line 9: too long"), ("content", "no XLIFF"), ("options.beam_size", "wrong"))
    assert translate("", "--beam-size", "3") == 1
    assert command.err == f"translane translate: {source}, line 9: too long; {source}: no XLIFF; --beam-size: wrong\n"


@pytest.mark.parametrize(("most", "problem"), [(4, "has 5 bytes"), (0, "translates no documents")])
def test_a_document_beyond_the_servers_limit_is_not_sent(server, command, translate, source, most, problem):
    server.limits.document_bytes = most
    source.write_text("abcde")
    assert translate() == 1
    assert problem in command.err
    assert server.requests == []


def test_notes_name_the_lines_and_the_rest_of_many_is_only_counted(server, command, translate, source):
    def noting(request, context):
        *before, last = answer_to(request)
        last.end.notes.extend(pb.DocumentNote(line=line, cut_sentences=1) for line in range(4, 20))
        return [*before, last]

    server.always = noting
    assert translate() == 0
    *notes, rest = command.err.splitlines()
    assert [note.split(": ")[1] for note in notes] == [f"{source}, line {number}" for number in range(2, 12)]
    assert rest == "translane translate: and 8 more such notes"


def test_progress_counts_texts(command, tmp_path):
    (tmp_path / "x.srt").write_text("a\n" * 99)
    command.stderr = Terminal()
    assert command("translate", "-i", str(tmp_path / "x.srt"), "-o", str(tmp_path / "out")) == 0
    assert "100 sentences" in command.err
    assert "100%" in command.err
