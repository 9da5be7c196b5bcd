"""The `translane` command: arguments, environment, exit codes."""

from __future__ import annotations

import io
import re
from collections import deque
from importlib.metadata import version
from pathlib import Path

import grpc
import pytest
from unit.client.fake_server import FakeServer, fails, reason

from helpers.client_command import Command
from translane.__main__ import main


def test_arguments_are_translated_in_order(command: Command):
    assert command("translate", "我有一只猫", "b c", "") == 0
    assert command.out == "<我有一只猫>\n<b c>\n\n"
    assert command.err == ""


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


def test_a_reader_that_left_ends_it_quietly(command: Command):
    class Closed(io.BytesIO):
        def write(self, data, /) -> int:
            raise BrokenPipeError

    command.stdout = Closed()
    assert command("translate", "a") == 141
    assert command.err == ""


@pytest.mark.parametrize("flag", ["--version", "-V"])
def test_version(capsys, flag: str):
    assert main([flag]) == 0
    assert capsys.readouterr().out == f"translane {version('translane')}\n"


@pytest.mark.parametrize(
    ("name", "usage"),
    [
        ("translate", "usage: translane translate [options] [TEXT ...]"),
        ("score", "usage: translane score [options] [SOURCE TARGET]"),
        ("models", "usage: translane models [options]"),
        ("bench", "usage: translane bench [options]"),
    ],
)
def test_help_has_words_for_values_and_each_default_once(capsys, name: str, usage: str):
    assert main([name, "--help"]) == 0
    page = capsys.readouterr().out
    assert page.splitlines()[0] == usage
    words = set(re.findall(r"^  (?:-\w \S+, )?--[a-z0-9-]+ ([^ \n]+)", page, re.MULTILINE))
    assert words <= {
        "FILE",
        "HOST:PORT",
        "N",
        "N,N",
        "NAME",
        "R",
        "REGEX",
        "SECONDS",
        "TAG",
        "TEXT",
        "TIME",
        "WHEN",
        "X",
    }
    entries = [" ".join(entry.split()) for entry in re.split(r"\n  (?=-)|\n\n", page)]
    assert (
        "--server HOST:PORT address of the server, or of several with commas between them, which requests take in turn"
        " (default: localhost:50051)"
    ) in entries
    assert max(entry.count("default:") for entry in entries) == 1
    assert "None" not in page


def test_help_shows_defaults_as_they_are_typed(capsys):
    assert main(["bench", "--help"]) == 0
    page = " ".join(capsys.readouterr().out.split())
    assert "latency that 95% of requests may reach (default: 500ms)" in page
    assert "texts of a higher priority go first (default: 0)" in page


def test_scripted_failures_are_ridden_out(server: FakeServer, command: Command):
    server.script = deque([fails(grpc.StatusCode.UNAVAILABLE, "draining", reason("DRAINING"))] * 2)
    assert command("translate", "a") == 0
    assert command.out == "<a>\n"


@pytest.mark.parametrize(
    ("words", "choice"),
    [
        (["a"], None),
        (["--split-sentences", "a"], True),
        (["a", "--split-sentences"], True),
        (["--no-split-sentences", "a"], False),
        (["--split-sentences", "on", "a"], True),
        (["--split-sentences=off", "a"], False),
        (["--split-sentences", "off", "a"], False),
        (["--split-sentences", "auto", "a"], None),
    ],
)
def test_cutting_into_sentences_is_a_choice_and_a_switch(server: FakeServer, command: Command, words, choice):
    assert command("translate", *words) == 0
    (request,) = server.requests
    assert list(request.texts) == ["a"]
    options = request.options
    assert (options.split_sentences if options.HasField("split_sentences") else None) is choice


def test_auto_wins_over_the_environment(server: FakeServer, command: Command):
    command.environ["TRANSLANE_CLIENT_SPLIT_SENTENCES"] = "yes"
    assert command("translate", "a") == 0
    assert command("translate", "--split-sentences=auto", "a") == 0
    assert [each.options.split_sentences for each in server.requests] == [True, False]


def test_a_text_after_two_dashes_is_no_flag(server: FakeServer, command: Command):
    assert command("translate", "--", "--split-sentences") == 0
    assert list(server.requests[0].texts) == ["--split-sentences"]


def test_another_choice_is_refused(command: Command, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        command("translate", "--split-sentences=maybe", "a")
    assert "auto, on or off is needed, not 'maybe'" in capsys.readouterr().err
