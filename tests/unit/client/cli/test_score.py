"""translane score, and translane translate --stream."""

import io
import json
from collections import deque
from pathlib import Path
from unittest.mock import Mock, call

import pytest

from fakes.translation_server import BROKEN, PATIENCE, FakeServer, answer_to, breaks_off, refuses
from translane.v1 import translation_pb2 as pb


@pytest.fixture
def files(tmp_path):
    source, target = tmp_path / "zh.txt", tmp_path / "en.txt"
    source.write_text("猫\n狗\n\n", encoding="utf-8")
    target.write_text("cat\na dog\n\n", encoding="utf-8")
    return str(source), str(target)


def inputs(server: FakeServer) -> list[tuple[str, str]]:
    return [(pair.source, pair.target) for request in server.requests for pair in request.inputs]


def test_a_pair_of_arguments(server, command):
    assert command("score", "猫", "cat") == 0
    assert inputs(server) == [("猫", "cat")]
    assert command.out == "-4.000000\n"
    assert command.err == "1 pair, 4 tokens: mean log-probability -1.000000 per token, perplexity 2.718\n"


@pytest.mark.parametrize("dashed", [None, 0, 1])  # either file may be standard input
def test_two_files_line_by_line(server, command, files, dashed):
    stdin = b"" if dashed is None else Path(files[dashed]).read_bytes()
    source, target = ("-" if number == dashed else name for number, name in enumerate(files))
    assert command("score", "-s", source, "-t", target, stdin=stdin) == 0
    assert inputs(server) == [("猫", "cat"), ("狗", "a dog"), ("", "")]
    assert command.out == "-4.000000\n-6.000000\n-1.000000\n"
    assert command.err.startswith("3 pairs, 11 tokens: mean log-probability -1.000000")


@pytest.mark.parametrize("flags", [[], ["-i", "-"]])
def test_tab_separated_pairs(server, command, flags):
    assert command("score", *flags, stdin="猫\tcat\r\n\t\n  a \tb".encode()) == 0
    assert inputs(server) == [("猫", "cat"), ("", ""), ("  a ", "b")]
    assert command.out.count("\n") == 3


def test_nothing_gives_nothing(command):
    assert command("score") == 0
    assert (command.out, command.err) == ("", "0 pairs\n")


def test_tokens_with_their_scores(command):
    assert command("score", "--tokens", "猫", "ab") == 0
    assert command.out == "-3.000000\ta:-1.000000 b:-1.000000 </s>:-1.000000\n"


def test_json_has_everything(command):
    assert command("score", "--json", "--tokens", "猫", "ab") == 0
    assert json.loads(command.out) == {
        "total_log_prob": -3.0,
        "mean_log_prob": -1.0,
        "token_log_probs": [-1.0, -1.0, -1.0],
        "tokens": ["a", "b", "</s>"],
        "model": "zh-en",
        "versions": {"zh-en": "2@5f1c0a9b3e21"},
        "timing": None,
    }


def test_all_that_says_how_to_score_travels(server, command):
    flags = ["--model", "m", "--source-language", "zh", "--target-language", "en", "--tokens", "--timeout", "50"]
    assert command("score", *flags, "a", "b") == 0
    assert server.requests == [
        pb.ScoreRequest(
            inputs=[pb.ScoreInput(source="a", target="b")],
            model="m",
            source_language="zh",
            target_language="en",
            return_tokens=True,
        )
    ]
    assert 40 < server.time_remaining[0] < 51


@pytest.mark.parametrize(("sources", "targets"), [(3, 5), (5, 3), (1, 0), (0, 1), (70, 200)])
def test_files_of_different_lengths_are_told_with_both(command, tmp_path, sources, targets):
    source, target = tmp_path / "zh.txt", tmp_path / "en.txt"
    source.write_text("a\n" * sources)
    target.write_text("b\n" * targets)
    assert command("score", "-s", str(source), "-t", str(target), "--batch-size", "8", "--concurrency", "2") == 1
    counts = [f"{count} line{'' if count == 1 else 's'}" for count in (sources, targets)]
    assert command.err.startswith(f"translane score: {source} has {counts[0]} and {target} {counts[1]}; ")
    assert command.err.endswith("written to standard output\n")
    assert command.err.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"no tab", "standard input, line 2: no tab, where one is needed between source and target"),
        (b"", "standard input, line 2: no tab, where one is needed between source and target"),
        (b"a\tb\tc", "standard input, line 2: 2 tabs, where one is needed between source and target"),
        (b"a\t\xff", "standard input, line 2: not valid UTF-8 (byte 3 of the line)"),
    ],
)
def test_a_line_that_is_no_pair_is_named(command, line, message):
    assert command("score", "--batch-size", "1", "--concurrency", "1", stdin=b"a\tb\n" + line + b"\na\tb\n") == 1
    assert command.err == f"translane score: {message}; 1 line was written to standard output\n"
    assert command.out == "-2.000000\n"


@pytest.mark.parametrize(
    ("field", "places"),
    [
        ("inputs[1].target", ["{target}, line 4", "standard input, line 4, target"]),
        ("inputs[1].source", ["{source}, line 4", "standard input, line 4, source"]),
        ("inputs[1]", ["{source}, line 4", "standard input, line 4"]),
    ],
)
def test_a_refused_pair_names_its_file_and_line(server, command, tmp_path, field, places):
    server.by_text(d=refuses((field, "too long")))
    source, target = tmp_path / "zh.txt", tmp_path / "en.txt"
    source.write_text("a\nb\nc\nd\n")
    target.write_text("a\nb\nc\nd\n")
    pairs = b"a\ta\nb\tb\nc\tc\nd\td\n"
    told = [place.format(source=source, target=target) for place in places]
    for flags, place in ((["-s", str(source), "-t", str(target)], told[0]), ([], told[1])):
        command.stderr = io.StringIO()
        assert command("score", "--batch-size", "2", *flags, stdin=pairs) == 1
        assert command.err == f"translane score: {place}: too long; 2 lines were written to standard output\n"


def test_a_refused_argument_is_told(server, command):
    server.always = refuses(("inputs[0].target", "too long"))
    assert command("score", "a", "b") == 1
    assert command.err == "translane score: target: too long\n"


def test_files_of_the_environment_give_way_to_the_command_line(server, command, files):
    source, target = files
    command.environ |= {"TRANSLANE_CLIENT_SOURCE_FILE": source, "TRANSLANE_CLIENT_TARGET_FILE": target}
    assert command("score") == 0
    assert len(inputs(server)) == 3
    server.requests.clear()
    assert command("score", "-i", "-", stdin=b"a\tb\n") == 0
    assert command("score", "c", "d") == 0
    assert inputs(server) == [("a", "b"), ("c", "d")]


def test_files_that_cannot_be_used_are_named(command, files):
    source, target = files
    for argv, message in (
        (["-s", source + "x", "-t", target], f"{source}x: No such file or directory"),
        (["-s", source, "-t", target, "-o", target], f"{target} is the input and cannot be the output as well"),
        (["-s", source, "-t", target, "-o", source], f"{source} is the input and cannot be the output as well"),
    ):
        command.stderr = io.StringIO()
        assert command("score", *argv) == 1
        assert command.err == f"translane score: {message}\n"
    assert Path(target).read_text() == "cat\na dog\n\n"


# `translane translate --stream`.


def test_each_delta_is_flushed_as_it_comes(command):
    command.stdout = output = Mock()
    assert command("translate", "--stream", "猫") == 0
    parts = [call.write(part.encode()) for part in "<猫>\n"]
    assert output.method_calls[: 2 * len(parts)] == [each for part in parts for each in (part, call.flush())]


@pytest.mark.parametrize("texts", [[], [""], ["a"], ["a", "", "b c", "猫"]])
def test_texts_are_streamed_one_after_the_other(server, command, texts):
    assert command("translate", "--stream", stdin="".join(f"{text}\n" for text in texts).encode()) == 0
    assert command.out == "".join(f"<{text}>\n" if text else "\n" for text in texts)
    assert [request.text for request in server.requests] == texts
    assert server.most_running <= 1


def test_what_was_typed_on_two_lines_is_streamed_on_two_lines(command):
    assert command("translate", "--stream", "--split-sentences", "a\r\nb") == 0
    assert command.out == "<a\r\nb>\n"


def test_json_is_a_line_for_each_delta_and_one_for_the_end(command):
    assert command("translate", "--stream", "--json", "猫", "") == 0
    lines = list(map(json.loads, command.out.splitlines()))
    assert lines[:3] == [{"index": 0, "delta": delta} for delta in "<猫>"]
    about = {"index": 0, "text": "<猫>", "score": -0.5, "tokens": [], "treatment": None, "models": []}
    assert about.items() <= lines[3].items()
    assert lines[3]["timing"]["total"] == 2.0
    assert [(line["index"], line["text"]) for line in lines[4:]] == [(1, "")]


def test_a_line_that_breaks_off_is_ended_and_not_counted(server, command):
    server.script = deque([lambda request, _: answer_to(request), breaks_off(2, BROKEN)])
    assert command("translate", "--stream", stdin=b"a\nbcd\ne\n") == 1
    assert command.out == "<a>\n<b\n"
    assert command.err == "translane translate: broken; 1 line was written to standard output\n"
    assert len(server.requests) == 2


def test_a_refused_text_names_its_line(server, command):
    server.by_text(b=refuses(("text", "too long")))
    assert command("translate", "--stream", stdin=b"a\nb\n") == 1
    assert (
        command.err == "translane translate: standard input, line 2: too long; 1 line was written to standard output\n"
    )
    command.stderr = io.StringIO()
    assert command("translate", "--stream", "a", "b") == 1
    assert command.err == "translane translate: text 2: too long\n"


def test_a_reader_that_left_cancels_the_call_quietly(server, command):
    class Closed(io.BytesIO):
        def write(self, data, /) -> int:
            raise BrokenPipeError

    server.always = server.hang_after(1)
    command.stdout = Closed()
    assert command("translate", "--stream", "a") == 141
    assert command.err == ""
    assert server.cancelled.wait(PATIENCE)
