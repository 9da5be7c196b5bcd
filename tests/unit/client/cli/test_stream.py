"""`translane translate --stream`."""

from __future__ import annotations

import io
import json
import signal
from collections import deque
from pathlib import Path

import pytest
from unit.client.fake_server import BROKEN, PATIENCE, FakeServer, answer_to, breaks_off, refuses

from helpers.client_command import Command, shell


class Flushed(io.BytesIO):
    """Keeps what each flush hands on."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._unseen = b""

    def write(self, data, /) -> int:
        self._unseen += bytes(data)
        return len(data)

    def flush(self) -> None:
        self.parts.append(self._unseen.decode())
        self._unseen = b""


def test_each_delta_is_flushed_as_it_comes(command: Command):
    command.stdout = output = Flushed()
    assert command("translate", "--stream", "猫") == 0
    assert output.parts == ["<", "猫", ">", "\n"]


@pytest.mark.parametrize("texts", [[], [""], ["a"], ["a", "", "b c", "猫"]])
def test_texts_are_streamed_one_after_the_other(server: FakeServer, command: Command, texts: list[str]):
    assert command("translate", "--stream", stdin="".join(f"{text}\n" for text in texts).encode()) == 0
    assert command.out == "".join(f"<{text}>\n" if text else "\n" for text in texts)
    assert [request.text for request in server.requests] == texts
    assert server.most_running <= 1


def test_from_file_to_file(command: Command, tmp_path: Path):
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("a\nb\n")
    assert command("translate", "--stream", "-i", str(source), "-o", str(target)) == 0
    assert target.read_text() == "<a>\n<b>\n"
    assert command.out == command.err == ""


def test_what_was_typed_on_two_lines_is_streamed_on_two_lines(command: Command):
    assert command("translate", "--stream", "--split-sentences", "a\r\nb") == 0
    assert command.out == "<a\r\nb>\n"


def test_json_is_a_line_for_each_delta_and_one_for_the_end(command: Command):
    assert command("translate", "--stream", "--json", "猫", "") == 0
    lines = list(map(json.loads, command.out.splitlines()))
    assert lines[:3] == [{"index": 0, "delta": delta} for delta in "<猫>"]
    assert lines[3] == {
        "index": 0,
        "text": "<猫>",
        "score": -0.5,
        "finish_reason": "end_of_sentence",
        "tokens": [],
        "token_log_probs": [],
        "alignment": [],
        "quality": None,
        "timing": {"queue": 0.0, "encode": 0.0, "decode": 0.0, "total": 2.0, "cached_texts": 0},
        "treatment": None,
        "models": [],
    }
    assert [(line["index"], line["text"]) for line in lines[4:]] == [(1, "")]


def test_a_line_that_breaks_off_is_ended_and_not_counted(server: FakeServer, command: Command):
    server.script = deque([lambda request, _: answer_to(request), breaks_off(2, BROKEN)])
    assert command("translate", "--stream", stdin=b"a\nbcd\ne\n") == 1
    assert command.out == "<a>\n<b\n"
    assert command.err == "translane translate: broken; 1 line was written to standard output\n"
    assert len(server.requests) == 2


def test_a_refused_text_names_its_line(server: FakeServer, command: Command):
    server.by_text(b=refuses(("text", "too long")))
    assert command("translate", "--stream", stdin=b"a\nb\n") == 1
    assert (
        command.err == "translane translate: standard input, line 2: too long; 1 line was written to standard output\n"
    )
    command.stderr = io.StringIO()
    assert command("translate", "--stream", "a", "b") == 1
    assert command.err == "translane translate: text 2: too long\n"


def test_a_reader_that_left_cancels_the_call_quietly(server: FakeServer, command: Command):
    class Closed(io.BytesIO):
        def write(self, data, /) -> int:
            raise BrokenPipeError

    server.always = server.hang_after(1)
    command.stdout = Closed()
    assert command("translate", "--stream", "a") == 141
    assert command.err == ""
    assert server.cancelled.wait(PATIENCE)


def test_ctrl_c_cancels_the_call_quietly(server: FakeServer):
    server.always = server.hang_after(1)
    with shell(server.address, "translate", "--stream", "a") as process:
        assert process.stdout.read(1) == b"<"  # before the rest is there
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr.read() == b""
    assert server.cancelled.wait(PATIENCE)
