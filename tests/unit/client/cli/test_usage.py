"""Arguments that make no sense, of every command: a sentence, exit code 2, and nothing travels."""

from __future__ import annotations

import grpc
import pytest
from unit.client.fake_server import FakeServer, fails, reason, retry_in

from helpers.client_command import Command


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
        ("models --server localhost:abc", "HOST:PORT is needed"),
        ("score a", "SOURCE and TARGET are needed, or neither; not 1 of them"),
        ("score a b c", "or neither; not 3 of them"),
        ("score a b -i f", "SOURCE TARGET and files exclude each other"),
        ("score a b -s f", "SOURCE TARGET and files exclude each other"),
        ("score -i f -t g", "-i and -s, -t exclude each other"),
        ("score -s f", "-s and -t are needed together"),
        ("score -t f", "-s and -t are needed together"),
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
def test_wrong_usage_exits_with_two(server: FakeServer, command: Command, line: str, message: str):
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
def test_a_wrong_variable_is_wrong_usage(command: Command, variables: dict[str, str], message: str):
    command.environ |= {f"TRANSLANE_CLIENT_{name}": value for name, value in variables.items()}
    assert command("translate", "a") == 2
    assert message in command.err


def test_who_waits_for_a_second_is_told_why_once(server: FakeServer, command: Command):
    starting = fails(
        grpc.StatusCode.UNAVAILABLE, "the server is starting", reason("UNAVAILABLE"), retry_in(0, 600_000_000)
    )
    server.script.extend([starting] * 4)
    assert command("translate", "a") == 0
    assert command.err == "translane translate: the server is starting; trying again\n"
