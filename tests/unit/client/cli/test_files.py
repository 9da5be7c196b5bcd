"""`translane translate` over lines and files: order, places, memory, progress."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.translation_server import refuses
from helpers.client_command import Terminal
from translane_client.cli import inputs
from translane_client.cli.inputs import texts_of
from translane_client.cli.outputs import LineWriter

UNICODE = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.mark.parametrize("lines", [0, 500])
def test_files_in_and_out(command, tmp_path, lines):
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_bytes(b"".join(b"%d\n" % n for n in range(lines)))
    target.write_text("of before")
    assert command("translate", "-i", str(source), "-o", str(target), "--batch-size", "7") == 0
    assert target.read_text() == "".join(f"<{n}>\n" for n in range(lines))
    assert command.out == command.err == ""


@pytest.mark.parametrize(
    ("stdin", "texts"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a", ["a"]),
        (b"a\n", ["a"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"\n\na\n\n", ["", "", "a", ""]),
        ("\ufeffa\n\ufeffb\n".encode(), ["a", "\ufeffb"]),
        (b"a\rb\n", ["a\rb"]),
        ("a\x0bb\x0cc\x1cd\x85e\u2028f\u2029g\n".encode(), ["a\x0bb\x0cc\x1cd\x85e\u2028f\u2029g"]),
        ("猫\n👩‍👩‍👧\x00\n".encode(), ["猫", "👩‍👩‍👧\x00"]),
    ],
)
def test_one_line_is_one_text(server, command, stdin, texts):
    assert command("translate", "-i", "-", "-o", "-", stdin=stdin) == 0
    assert [text for request in server.requests for text in request.texts] == texts
    assert command.stdout.getvalue().count(b"\n") == len(texts)


def test_invalid_utf8_names_file_and_line(command, tmp_path):
    source = tmp_path / "in.txt"
    source.write_bytes(b"a\n" * 9 + b"ab\xff\n" + b"c\n")
    assert command("translate", "-i", str(source), "--batch-size", "2", "--concurrency", "1") == 1
    assert command.err == (
        f"translane translate: {source}, line 10: not valid UTF-8 (byte 3 of the line);"
        " 9 lines were written to standard output\n"
    )
    assert command.out == "<a>\n" * 9


def test_a_line_without_end_is_refused(command, monkeypatch):
    monkeypatch.setattr(inputs, "LONGEST_LINE", 10)
    assert command("translate", stdin=b"\xef\xbb\xbf1234567890\r\n1234567890\r\n" + b"x" * 11) == 1
    assert command.err.startswith("translane translate: standard input, line 3: longer than 10 bytes")


def test_a_refused_text_names_its_line(server, command):
    server.by_text(d=refuses(("texts[1]", "longer than 256 tokens")))
    assert command("translate", "--batch-size", "2", stdin=b"a\nb\nc\nd\n") == 1
    told = "longer than 256 tokens; 2 lines were written to standard output\n"
    assert command.err == f"translane translate: standard input, line 4: {told}"
    command.stderr = io.StringIO()
    assert command("translate", "c", "d") == 1
    assert command.err == "translane translate: text 2: longer than 256 tokens\n"


def test_files_that_cannot_be_used_are_named(command, tmp_path):
    source = tmp_path / "in.txt"
    source.write_text("a\n")
    for argv, message in (
        (["-i", str(tmp_path / "none")], f"{tmp_path / 'none'}: No such file or directory"),
        (["-i", str(tmp_path)], "Is a directory"),
        (["-i", str(source), "-o", str(tmp_path / "no" / "out")], "No such file or directory; 0 lines were written to"),
        (["-i", str(source), "-o", str(source)], "is the input and cannot be the output"),
        (["-i", str(source), "-o", "/dev/full"], "/dev/full: No space left on device; 0 lines were written"),
    ):
        command.stderr = io.StringIO()
        assert command("translate", *argv) == 1
        assert message in command.err
        assert command.err.count("\n") == 1
    assert source.read_text() == "a\n"


class CountedOutput(io.BytesIO):
    """Keeps the number of lines, and nothing else."""

    lines = 0

    def write(self, data, /) -> int:
        self.lines += bytes(data).count(b"\n")
        return len(data)


class CountedInput(io.BytesIO):
    """Repeats a line, and notes how far reading runs ahead of what was written."""

    def __init__(self, line: bytes, count: int, output: CountedOutput) -> None:
        self.read_lines = self.furthest = 0
        self._line, self._count, self._output = line, count, output

    def readline(self, size: int | None = -1, /) -> bytes:
        self.furthest = max(self.furthest, self.read_lines - self._output.lines)
        if self.read_lines == self._count:
            return b""
        self.read_lines += 1
        return self._line


@pytest.mark.parametrize("line", [b"a\n", b"\n"])
def test_memory_is_bounded_over_many_lines(command, line):
    command.stdout = output = CountedOutput()
    stdin = CountedInput(line, 5_000, output)
    assert command("translate", "--batch-size", "100", "--concurrency", "3", stdin=stdin) == 0
    assert output.lines == 5_000
    assert stdin.furthest <= 301


def test_a_person_who_types_gets_each_line_at_once(server, command):
    class Typed(CountedInput):
        def isatty(self) -> bool:
            return True

    command.stdout = output = CountedOutput()
    stdin = Typed(b"a\n", 5, output)
    assert command("translate", stdin=stdin) == 0
    assert stdin.furthest == 0


def test_progress_is_drawn_on_a_terminal(command, tmp_path):
    source = tmp_path / "in.txt"
    source.write_text("abc\n" * 200)
    command.stderr = Terminal()
    assert command("translate", "-i", str(source)) == 0
    assert command.err.startswith("\r1 sentences  ")
    assert command.err.endswith("\x1b[K\n")
    final = command.err.rsplit("\r", 1)[1]
    assert "200 sentences" in final
    assert f"100% [{'#' * 24}]  0:00 left" in final
    command.stderr = Terminal()
    assert command("translate", stdin=b"a\n") == 0
    assert "sentences" in command.err
    assert "%" not in command.err  # of a pipe


def test_no_progress_for_arguments_or_beside_output_on_the_same_terminal(command):
    class Screen(io.BytesIO):
        def isatty(self) -> bool:
            return True

    command.stderr = Terminal()
    assert command("translate", "a") == 0
    command.stdout = Screen()
    assert command("translate", stdin=b"a\n") == 0
    assert command.err == ""


@given(st.lists(UNICODE.filter(lambda text: not {"\r", "\n"} & set(text))), st.sampled_from(["\n", "\r\n"]))
def test_what_is_written_is_read_back(texts, end):
    stdout = io.BytesIO()
    writer = LineWriter(None, stdout)
    for text in texts:
        writer.write(text)
    data = b"\xef\xbb\xbf" + stdout.getvalue().replace(b"\n", end.encode())
    read = list(texts_of(io.BytesIO(data), "memory"))
    assert [text for text, _ in read] == texts
    assert sum(size for _, size in read) == (len(data) if texts else 0)


@given(st.lists(st.text(st.sampled_from("a\r\n猫"), min_size=1)), st.booleans())
def test_parts_make_the_line_that_their_text_makes(parts, keep_breaks):
    whole, cut = io.BytesIO(), io.BytesIO()
    LineWriter(None, whole, keep_breaks=keep_breaks).write("".join(parts))
    writer = LineWriter(None, cut, keep_breaks=keep_breaks)
    writer.write_parts(parts)
    assert cut.getvalue() == whole.getvalue()
    assert writer.count == 1
