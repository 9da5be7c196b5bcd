"""The command's arguments, environment, exit codes, pipes and signals; and translane models."""

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from time import sleep

import grpc
import pytest

from fakes.translation_server import PATIENCE, answer_to, fails, reason, retry_in
from helpers.client_command import Command, shell
from translane.v1 import translation_pb2 as pb


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("translate --beams 3", "--beams"),
        ("translate a -i f", "TEXT and -i"),
        ("translate --max-length 0", "an integer from 1 to 2147483647 is needed, not '0'"),
        ("translate --max-length 99999999999", "an integer from 1 to 2147483647 is needed"),
        ("translate --timeout soon", "a positive number of seconds is needed, not 'soon'"),
        ("translate --timeout nan", "a positive number of seconds is needed"),
        ("translate --priority x", "an integer from -2147483647 to 2147483647 is needed"),
        ("translate --priority 99999999999", "an integer from -2147483647 to 2147483647 is needed"),
        ("translate --model \udcff", "--model: not valid UTF-8: '\\udcff'"),
        ("translate --token secret a", "unknown argument --token"),  # a list of processes would show it
        ("translate a --nbest 2 --num-hypotheses 2", "--nbest and --num-hypotheses exclude each other"),
        ("translate --stream a --nbest 2", "--stream writes the text of one hypothesis: it excludes n-best lines"),
        ("translate --stream a --num-hypotheses 2", "--stream writes the text of one hypothesis"),
        ("translate --stream a --scores", "--stream writes the text of one hypothesis"),
        ("translate --stream a --tokens", "--stream writes the text of one hypothesis"),
        (
            "translate --file-format doc",
            "one of lines, srt, vtt, po, xliff, html, markdown, tsv, jsonl is needed, not 'doc'",
        ),
        ("translate --format doc", "one of text, html, markdown, xliff is needed, not 'doc'"),
        ("translate --file-format srt --all", "--all is not about files of the kind srt"),
        ("translate a --file-format po", "--file-format is about files: TEXT excludes it"),
        ("translate --file-format vtt --json", "a file of the kind vtt takes the text of one hypothesis"),
        ("translate --file-format po --nbest 2", "a file of the kind po takes the text of one hypothesis"),
        ("translate --file-format po --quality", "a file of the kind po takes the text of one hypothesis"),
        ("translate --file-format po --stream", "--stream is about texts, and not about files of the kind po"),
        (
            "translate --file-format html --format xliff",
            "--format is about texts, and not about files of the kind html",
        ),
        ("models --server \udcff", "--server: not valid UTF-8: '\\udcff'"),
        ("models --server http://here", "HOST:PORT is needed"),
        ("score a", "SOURCE and TARGET are needed, or neither; not 1 of them"),
        ("score a b c", "or neither; not 3 of them"),
        ("score a b -i f", "SOURCE TARGET and files exclude each other"),
        ("score a b -s f", "SOURCE TARGET and files exclude each other"),
        ("score -i f -t g", "-i and -s, -t exclude each other"),
        ("score -s f", "-s and -t are needed together"),
        ("score -s - -t -", "one of -s and -t can be standard input, not both"),
        ("score a \udcff", "not valid UTF-8"),
        ("bench --rate 0", "--rate: a positive number is needed, not '0'"),
        ("bench --rate 5 --clients 3", "--clients excludes --rate and --find-rate"),
        ("bench --find-rate --clients 3", "--clients excludes --rate and --find-rate"),
        ("bench --find-rate --rate 3 4", "--find-rate takes one --rate"),
        ("bench --p95 5h", "--p95: a duration such as 500ms, 10s or 2m is needed, not '5h'"),
        ("bench --duration 0", "--duration: a duration such as"),
        ("bench --max-lengths", "--max-lengths needs -i"),
        ("bench --attempts 3", "--attempts"),
    ],
)
def test_wrong_usage_exits_with_two(server, command, line, message):
    assert command(*line.split()) == 2
    assert message in command.err
    assert server.requests == []


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"MODEL": "\udcff"}, "TRANSLANE_CLIENT_MODEL: not valid UTF-8"),
        ({"CONCURRENCY": "none"}, "TRANSLANE_CLIENT_CONCURRENCY: an integer from 1 to 2147483647 is needed"),
        ({"JSON": "perhaps"}, "TRANSLANE_CLIENT_JSON: true or false is needed"),
        ({"NBEST": "2", "NUM_HYPOTHESES": "2"}, "--nbest and --num-hypotheses exclude each other"),
    ],
)
def test_a_wrong_variable_is_wrong_usage(command, variables, message):
    command.environ |= {f"TRANSLANE_CLIENT_{name}": value for name, value in variables.items()}
    assert command("translate", "a") == 2
    assert message in command.err


def test_who_waits_for_a_second_is_told_why_once(server, command):
    starting = fails(
        grpc.StatusCode.UNAVAILABLE, "the server is starting", reason("UNAVAILABLE"), retry_in(0, 600_000_000)
    )
    server.script.extend([starting] * 4)
    assert command("translate", "a") == 0
    assert command.err == "translane translate: the server is starting; trying again\n"


@pytest.mark.parametrize(
    "line", ["translate --batch-size 1", "translate --stream", "bench -i - --clients 1 --duration 100ms --warm-up 0"]
)
def test_who_waits_for_a_second_is_told_for_whom(server, command, line):
    def late(request, context):
        sleep(1.3)
        return answer_to(request)

    server.script.append(late)
    assert command(*line.split(), stdin=b"a\n") == 0
    told = f"translane {line.split()[0]}: no answer from {server.address} yet\n"
    assert command.err.startswith(told)
    # Once there was an answer, a late one is no wonder.
    server.script.extend([lambda request, _: answer_to(request), late])
    assert command("translate", "--batch-size=1", "--concurrency=1", stdin=b"a\nb\n") == 0
    assert command.err.count("yet") == 1


# The `translane` command: arguments, environment, exit codes; and `translane models`.


def test_flags_reach_the_request_and_win_over_the_environment(server, command):
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


def test_a_server_that_is_down_is_one_sentence(refused, tmp_path):
    command, target = Command(refused), tmp_path / "kept.txt"
    target.write_text("of before")
    tried = [["models"], ["translate", "a"], ["translate", "-o", str(target)]]
    for argv in (["bench"], ["bench", "-i", str(target)], *([*words, "--attempts", "2"] for words in tried)):
        command.stderr = io.StringIO()
        assert command(*argv, stdin=b"a\n") == 1
        sentence = f"translane {argv[0]}: cannot reach {refused}: connection refused"
        told = f"; 0 lines were written to {target}" if "-o" in argv else ""
        assert (command.err, command.out) == (f"{sentence}{told}\n", "")
    assert target.read_text() == "of before"


def test_models_as_a_table(command):
    assert command("models") == 0
    heading, row, blank, limits = command.out.splitlines()
    assert heading.split()[:4] == ["NAME", "VERSION", "LANGUAGES", "PRECISION"]
    assert row.split() == ["zh-en", "1.2", "zh-Hans,zh-Hant→en", "fp32", "cpu", "9,876,543", "256", "128"]
    assert heading.index("PRECISION") == row.index("fp32")
    assert blank == ""
    assert limits.startswith("server 0.1.0: at most 64 texts per request, 256 sentences waiting")


def test_models_tell_their_defaults_and_glossaries(server, command):
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


def test_a_model_of_many_languages_fits_a_terminal(server, command):
    tags = [f"{first}{second}" for first in "abcdefghij" for second in "klmnopqrst"]
    server.source_languages = tuple(tags)
    assert command("models") == 0
    lines = command.out.splitlines()
    assert max(map(len, lines)) <= 100
    assert "100 languages→en" in lines[1]
    assert set(tags) <= set(command.out.replace(",", " ").split())


# The `translane` command in a process of its own: encodings, pipes, signals, closed streams.


def test_the_shell_sees_utf8_whatever_the_locale(server):
    with shell(server.address, "translate") as process:
        out, err = process.communicate("猫\n".encode(), timeout=60)
    assert (out.decode(), err, process.returncode) == ("<猫>\n", b"", 0)


@pytest.mark.parametrize("argv", [["translate", "a"], ["models"]])
def test_a_full_disk_behind_the_shell_is_one_sentence(server, argv):
    with Path("/dev/full").open("wb") as full, shell(server.address, *argv, stdout=full) as process:
        _, err = process.communicate(timeout=60)
    assert (err.decode(), process.returncode) == (f"translane {argv[0]}: standard output: No space left on device\n", 1)


def test_ctrl_c_ends_it_quietly(server):
    server.always = server.hang
    with shell(server.address, "translate", "--batch-size", "1") as process:
        process.stdin.write(b"a\n" * 10)
        process.stdin.close()
        server.wait_for_requests(2)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr.read() == b""
    assert server.cancelled.wait(PATIENCE)


@pytest.mark.parametrize(
    ("closing", "argv", "status", "out", "err"),
    [
        (">&-", "translate a", 1, "", "translane translate: standard output is closed\n"),
        (">&-", "models", 1, "", "translane models: standard output is closed\n"),
        (">&-", "translate a -o /dev/stderr", 0, "", "<a>\n"),
        ("<&-", "translate a", 0, "<a>\n", ""),
        ("<&-", "translate", 1, "", "translane translate: standard input is closed\n"),
        ("2>&-", "translate a", 0, "<a>\n", ""),
    ],
)
def test_closed_standard_streams_are_told(server, closing, argv, status, out, err):
    done = subprocess.run(
        ["bash", "-c", f'"$0" -m translane {argv} {closing}', sys.executable],
        env={**os.environ, "TRANSLANE_CLIENT_SERVER": server.address},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (status, out, err)
