"""The `translane` command: arguments, environment, exit codes; and `translane models`."""

from __future__ import annotations

import io
import json
from pathlib import Path

from unit.client.fake_server import FakeServer

from helpers.client_command import Command
from translane.v1 import translation_pb2 as pb


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


def test_a_server_that_is_down_is_one_sentence(refused: str, tmp_path: Path):
    command, target = Command(refused), tmp_path / "kept.txt"
    target.write_text("of before")
    for argv in (["models"], ["translate", "a"], ["translate", "-o", str(target)]):
        command.stderr = io.StringIO()
        assert command(*argv, "--attempts", "2", stdin=b"a\n") == 1
        sentence = f"translane {argv[0]}: cannot reach {refused}: connection refused"
        told = f"; 0 lines were written to {target}" if "-o" in argv else ""
        assert command.err == f"{sentence}{told}\n"
    assert target.read_text() == "of before"


def test_a_text_after_two_dashes_is_no_flag(server: FakeServer, command: Command):
    assert command("translate", "--", "--split-sentences") == 0
    assert list(server.requests[0].texts) == ["--split-sentences"]


def test_models_as_a_table(command: Command):
    assert command("models") == 0
    heading, row, blank, limits = command.out.splitlines()
    assert heading.split()[:4] == ["NAME", "VERSION", "LANGUAGES", "PRECISION"]
    assert row.split() == ["zh-en", "1.2", "zh-Hans,zh-Hant→en", "fp32", "cpu", "9,876,543", "256", "128"]
    assert heading.index("PRECISION") == row.index("fp32")
    assert blank == ""
    assert limits.startswith("server 0.1.0: at most 64 texts per request, 256 sentences waiting")


def test_models_tell_their_defaults_and_glossaries(server: FakeServer, command: Command):
    server.decoding_defaults = pb.DecodingOptions(beam_size=6, length_penalty=0.6, early_stopping=True)
    server.glossaries = ["cats", "dogs"]
    assert command("models") == 0
    assert command.out.splitlines()[2:5] == [
        "zh-en decodes by default with beam_size 6, length_penalty 0.6, early_stopping true",
        "zh-en has the glossaries cats, dogs",
        "",
    ]
    command.stdout.truncate(0)
    command.stdout.seek(0)
    assert command("models", "--json") == 0
    shown = json.loads(command.out)["models"][0]
    assert shown["decoding_defaults"] == {"beam_size": 6, "length_penalty": 0.6, "early_stopping": True}
    assert shown["glossaries"] == ["cats", "dogs"]


def test_a_model_of_many_languages_fits_a_terminal(server: FakeServer, command: Command):
    tags = [f"{first}{second}" for first in "abcdefghij" for second in "klmnopqrst"]
    server.source_languages = tuple(tags)
    assert command("models") == 0
    lines = command.out.splitlines()
    assert max(map(len, lines)) <= 100
    assert "100 languages→en" in lines[1]
    assert set(tags) <= set(command.out.replace(",", " ").split())
