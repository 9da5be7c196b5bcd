"""The `translane` command, through `main` and through the shell."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections import deque
from pathlib import Path

import grpc
import pytest
from unit.client.fake_server import FakeServer, answer, bad_fields, fails, reason

from translane_client import lines
from translane_client.__main__ import main


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Command:
    """Runs `main` against a server and keeps what it wrote."""

    def __init__(self, address: str) -> None:
        self.environ = {"TRANSLANE_CLIENT_SERVER": address}
        self.stderr = io.StringIO()
        self.stdout = io.BytesIO()

    def __call__(self, *argv: str, stdin: bytes | io.BytesIO = b"") -> int:
        stdin = io.BytesIO(stdin) if isinstance(stdin, bytes) else stdin
        return main(argv, stdin=stdin, stdout=self.stdout, stderr=self.stderr, environ=self.environ)

    @property
    def out(self) -> str:
        return self.stdout.getvalue().decode()

    @property
    def err(self) -> str:
        return self.stderr.getvalue()


@pytest.fixture
def command(server: FakeServer) -> Command:
    return Command(server.address)


def test_arguments_are_translated_in_order(command: Command):
    assert command("translate", "我有一只猫", "b c", "") == 0
    assert command.out == "<我有一只猫>\n<b c>\n\n"
    assert command.err == ""


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
def test_one_line_is_one_text(server: FakeServer, command: Command, stdin: bytes, texts: list[str]):
    assert command("translate", stdin=stdin) == 0
    assert [text for request in server.requests for text in request.texts] == texts
    assert command.stdout.getvalue().count(b"\n") == len(texts)


def test_line_ends_inside_a_translation_become_spaces(server: FakeServer, command: Command):
    def broken(request, context):
        response = answer(request)
        response.translations[0].hypotheses[0].text = "a\nb\r\nc\rd\u2028e"
        return response

    server.always = broken
    assert command("translate", "x") == 0
    assert command.out == "a b c d\u2028e\n"


def test_files_in_and_out(command: Command, tmp_path: Path):
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_bytes(b"".join(b"%d\n" % n for n in range(500)))
    target.write_text("of before")
    assert command("translate", "-i", str(source), "-o", str(target), "--batch-size", "7") == 0
    assert target.read_text() == "".join(f"<{n}>\n" for n in range(500))
    assert command.out == command.err == ""


def test_an_empty_file_gives_an_empty_file(command: Command, tmp_path: Path):
    target = tmp_path / "out.txt"
    assert command("translate", "-o", str(target)) == 0
    assert target.read_bytes() == b""


def test_a_dash_is_a_standard_stream(command: Command):
    assert command("translate", "-i", "-", "-o", "-", stdin=b"a\n") == 0
    assert command.out == "<a>\n"


def test_json_lines(command: Command):
    assert command("translate", "--json", "猫", "b") == 0
    first, second = map(json.loads, command.out.splitlines())
    assert first == {"text": "<猫>", "score": -0.5, "finish_reason": "end_of_sentence", "source_tokens": 1}
    assert second["text"] == "<b>"


def test_flags_reach_the_request_and_win_over_the_environment(server: FakeServer, command: Command):
    command.environ |= {
        "TRANSLANE_CLIENT_MODEL": "from-environment",
        "TRANSLANE_CLIENT_SOURCE_LANGUAGE": "zh",
        "TRANSLANE_CLIENT_TIMEOUT": "1",
        "TRANSLANE_CLIENT_PRIORITY": "-2",
        "TRANSLANE_CLIENT_BATCH_SIZE": "",
        "TRANSLANE_CLIENT_JSON": "yes",
        "TRANSLANE_CLIENT_INPUT": "/nowhere",
    }
    flags = ["--model", "m", "--target-language", "en", "--max-length", "9", "--timeout", "50", "--no-json"]
    assert command("translate", *flags, "a") == 0
    (request,) = server.requests
    assert (request.model, request.source_language, request.target_language) == ("m", "zh", "en")
    assert (request.options.max_length, request.priority) == (9, -2)
    assert server.time_remaining[0] > 40
    assert command.out == "<a>\n"


@pytest.mark.parametrize(
    ("argv", "environ", "message"),
    [
        ([], {}, "COMMAND"),
        (["translate", "--beams", "3"], {}, "--beams"),
        (["translate", "a", "-i", "f"], {}, "TEXT and -i"),
        (["translate", "--max-length", "0"], {}, "a positive integer is needed, not '0'"),
        (["translate", "--timeout", "soon"], {}, "a positive number of seconds is needed, not 'soon'"),
        (["translate", "--timeout", "nan"], {}, "a positive number of seconds is needed"),
        (["translate", "--priority", "x"], {}, "an integer is needed"),
        (["translate", "--priority", "99999999999"], {}, "an integer from -2147483647 to 2147483647 is needed"),
        (["translate", "--max-length", "99999999999"], {}, "a positive integer up to 2147483647 is needed"),
        (["translate", "--model", "\udcff"], {}, "--model: not valid UTF-8: '\\udcff'"),
        (["models", "--server", "\udcff"], {}, "--server: not valid UTF-8: '\\udcff'"),
        (["translate"], {"MODEL": "\udcff"}, "TRANSLANE_CLIENT_MODEL: not valid UTF-8"),
        (["models", "--server", "http://here"], {}, "HOST:PORT is needed"),
        (["translate"], {"CONCURRENCY": "none"}, "TRANSLANE_CLIENT_CONCURRENCY: a positive integer is needed"),
        (["models"], {"JSON": "perhaps"}, "TRANSLANE_CLIENT_JSON: true or false is needed"),
    ],
)
def test_wrong_usage_exits_with_two(command: Command, capsys, argv, environ, message: str):
    command.environ |= {f"TRANSLANE_CLIENT_{name}": value for name, value in environ.items()}
    with pytest.raises(SystemExit) as caught:
        command(*argv)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def test_a_server_that_is_down_is_one_sentence(refused: str, tmp_path: Path):
    command, target = Command(refused), tmp_path / "kept.txt"
    target.write_text("of before")
    for argv in (["models"], ["translate", "a"], ["translate", "-o", str(target)]):
        command.stderr = io.StringIO()
        assert command(*argv, "--attempts", "2", stdin=b"a\n") == 1
        sentence = f"translane: cannot reach {refused}: connection refused"
        told = f"; 0 lines were written to {target}" if "-o" in argv else ""
        assert command.err == f"{sentence}{told}\n"
    assert target.read_text() == "of before"


def test_invalid_utf8_names_file_and_line(command: Command, tmp_path: Path):
    source = tmp_path / "in.txt"
    source.write_bytes(b"a\n" * 9 + b"ab\xff\n" + b"c\n")
    assert command("translate", "-i", str(source), "--batch-size", "2", "--concurrency", "1") == 1
    assert command.err == (
        f"translane: {source}, line 10: not valid UTF-8 (byte 3 of the line); 8 lines were written to standard output\n"
    )
    assert command.out == "<a>\n" * 8


def test_a_line_without_end_is_refused(command: Command, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lines, "LONGEST_LINE", 10)
    assert command("translate", stdin=b"123456789\n" + b"x" * 11) == 1
    assert command.err.startswith("translane: standard input, line 2: longer than 10 bytes")


def test_a_refused_text_names_its_line(server: FakeServer, command: Command):
    problem = fails(
        grpc.StatusCode.INVALID_ARGUMENT,
        "texts[1]: longer than 256 tokens",
        reason("INVALID_FIELD"),
        bad_fields(("texts[1]", "longer than 256 tokens")),
    )
    server.by_text(d=problem)
    assert command("translate", "--batch-size", "2", stdin=b"a\nb\nc\nd\n") == 1
    told = "longer than 256 tokens; 2 lines were written to standard output\n"
    assert command.err == f"translane: standard input, line 4: {told}"
    command.stderr = io.StringIO()
    assert command("translate", "c", "d") == 1
    assert command.err == "translane: text 2: longer than 256 tokens\n"


def test_files_that_cannot_be_used_are_named(command: Command, tmp_path: Path):
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


class CountedInput(io.BytesIO):
    """Makes its lines up, and notes how far reading runs ahead of what was written."""

    def __init__(self, count: int, output: io.BytesIO) -> None:
        self.read_lines = self.furthest = 0
        self._count = count
        self._output = output

    def readline(self, size: int | None = -1, /) -> bytes:
        self.furthest = max(self.furthest, self.read_lines - self._output.lines)
        if self.read_lines == self._count:
            return b""
        self.read_lines += 1
        return b"%d\n" % self.read_lines


class CountedOutput(io.BytesIO):
    """Keeps the number of lines and the last one, and nothing else."""

    lines = 0
    last = b""

    def write(self, data, /) -> int:
        self.lines += 1
        self.last = bytes(data)
        return len(data)


def test_memory_is_bounded_over_100_000_lines(server: FakeServer, command: Command):
    command.stdout = output = CountedOutput()
    stdin = CountedInput(100_000, output)
    assert command("translate", "--batch-size", "1000", "--concurrency", "3", stdin=stdin) == 0
    assert (output.lines, output.last) == (100_000, b"<100000>\n")
    assert stdin.furthest <= 3000


def test_a_person_who_types_gets_each_line_at_once(server: FakeServer, command: Command):
    class Typed(CountedInput):
        def isatty(self) -> bool:
            return True

    command.stdout = output = CountedOutput()
    stdin = Typed(5, output)
    assert command("translate", stdin=stdin) == 0
    assert stdin.furthest == 0


def test_progress_is_drawn_on_a_terminal(command: Command, tmp_path: Path):
    source = tmp_path / "in.txt"
    source.write_text("abc\n" * 200)
    command.stderr = Terminal()
    assert command("translate", "-i", str(source)) == 0
    assert command.err.startswith("\r1 sentences  ")
    assert command.err.endswith("\x1b[K\n")
    final = command.err.rsplit("\r", 1)[1]
    assert "200 sentences" in final
    assert f"100% [{'#' * 24}]  0:00 left" in final


def test_progress_of_a_pipe_has_no_percentage(command: Command):
    command.stderr = Terminal()
    assert command("translate", stdin=b"a\n") == 0
    assert "sentences" in command.err
    assert "%" not in command.err


def test_no_progress_for_arguments_or_beside_output_on_the_same_terminal(command: Command):
    class Screen(io.BytesIO):
        def isatty(self) -> bool:
            return True

    command.stderr = Terminal()
    assert command("translate", "a") == 0
    command.stdout = Screen()
    assert command("translate", stdin=b"a\n") == 0
    assert command.err == ""


def test_a_reader_that_left_ends_it_quietly(command: Command):
    class Closed(io.BytesIO):
        def write(self, data, /) -> int:
            raise BrokenPipeError

    command.stdout = Closed()
    assert command("translate", "a") == 141
    assert command.err == ""


def test_models_as_a_table(command: Command):
    assert command("models") == 0
    heading, row, blank, limits = command.out.splitlines()
    assert heading.split()[:4] == ["NAME", "VERSION", "LANGUAGES", "PRECISION"]
    assert row.split() == ["zh-en", "1.2", "zh-Hans,zh-Hant→en", "fp32", "cpu", "9,876,543", "256", "128"]
    assert heading.index("PRECISION") == row.index("fp32")
    assert blank == ""
    assert limits.startswith("server 0.1.0: at most 64 texts per request, 256 sentences waiting")


def test_models_as_json(command: Command):
    assert command("models", "--json") == 0
    shown = json.loads(command.out)
    assert shown["limits"]["texts_per_request"] == 64
    assert shown["models"][0]["source_languages"] == ["zh-Hans", "zh-Hant"]


def shell(server: FakeServer, *argv: str, stdout=subprocess.PIPE) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "translane_client", *argv],
        env={**os.environ, "TRANSLANE_CLIENT_SERVER": server.address, "LC_ALL": "C", "PYTHONUTF8": "0"},
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=subprocess.PIPE,
    )


def test_the_shell_sees_utf8_whatever_the_locale(server: FakeServer):
    with shell(server, "translate") as process:
        out, err = process.communicate("猫\n".encode(), timeout=60)
    assert (out.decode(), err, process.returncode) == ("<猫>\n", b"", 0)


def test_the_shell_may_close_the_pipe(server: FakeServer):
    with shell(server, "translate", "--batch-size", "1") as process:
        process.stdout.close()
        process.stdin.write(b"a\n" * 10)
        process.stdin.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 141


@pytest.mark.parametrize("argv", [["translate", "a"], ["models"]])
def test_a_full_disk_behind_the_shell_is_one_sentence(server: FakeServer, argv: list[str]):
    with Path("/dev/full").open("wb") as full, shell(server, *argv, stdout=full) as process:
        _, err = process.communicate(timeout=60)
    assert (err, process.returncode) == (b"translane: standard output: No space left on device\n", 1)


def test_ctrl_c_ends_it_quietly(server: FakeServer):
    server.always = server.hang
    with shell(server, "translate", "--batch-size", "1") as process:
        process.stdin.write(b"a\n" * 10)
        process.stdin.close()
        server.wait_for_requests(2)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr.read() == b""
    assert server.cancelled.wait(10)


def test_ctrl_c_during_the_start_is_quiet(monkeypatch: pytest.MonkeyPatch, capsys):
    class Interrupted:
        def find_spec(self, name, *_):
            if name == "translane_client.command":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "translane_client.command", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    assert main(["translate", "a"]) == 130
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("closing", "argv", "status", "out", "err"),
    [
        (">&-", "translate a", 1, "", "translane: standard output is closed\n"),
        (">&-", "models", 1, "", "translane: standard output is closed\n"),
        (">&-", "translate a -o /dev/stderr", 0, "", "<a>\n"),
        ("<&-", "translate a", 0, "<a>\n", ""),
        ("<&-", "translate", 1, "", "translane: standard input is closed\n"),
        ("2>&-", "translate a", 0, "<a>\n", ""),
    ],
)
def test_closed_standard_streams_are_told(server: FakeServer, closing, argv: str, status, out: str, err: str):
    done = subprocess.run(
        ["bash", "-c", f'"$0" -m translane_client {argv} {closing}', sys.executable],
        env={**os.environ, "TRANSLANE_CLIENT_SERVER": server.address},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (status, out, err)


def test_version(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("translane 0.")


def test_scripted_failures_are_ridden_out(server: FakeServer, command: Command):
    server.script = deque([fails(grpc.StatusCode.UNAVAILABLE, "draining", reason("DRAINING"))] * 2)
    assert command("translate", "a") == 0
    assert command.out == "<a>\n"
