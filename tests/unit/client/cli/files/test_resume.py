"""`translane translate --resume`: a command that was interrupted goes on, and loses and repeats nothing."""

from __future__ import annotations

import io
import random
from pathlib import Path

import pytest
from unit.client.fake_server import BROKEN, FakeServer, answer_to, texts_of

from helpers.client_command import Command, shell
from translane_client.cli.files import journal as journals

SRT = "".join(f"{n}\n00:00:{n:02},000 --> 00:00:{n:02},500\nCue {n}\nof many\n\n" for n in range(1, 41))
LINES = "".join(f"line {n}\n" for n in range(1, 41))


def stops_after(count: int, behaviour):
    """A server that answers so many requests, and then behaves otherwise."""
    seen = 0

    def behave(request, context):
        nonlocal seen
        seen += 1
        return answer_to(request) if seen <= count else behaviour(request, context)

    return behave


def sent(server: FakeServer) -> list[str]:
    return [text for request in server.requests for text in texts_of(request)]


class Job:
    """A file to translate, by the command in this process or by a process of its own."""

    def __init__(self, folder: Path, name: str, text: str) -> None:
        self.source, self.target = folder / f"in.{name}", folder / f"out.{name}"
        self.journal = folder / f"out.{name}.journal"
        self.working = folder / f"out.{name}.part" if name == "srt" else self.target
        self.source.write_text(text)
        self.argv = ["translate", "-i", str(self.source), "-o", str(self.target), "--batch-size", "2"]
        self.argv += ["--concurrency", "1"]


@pytest.fixture(params=["txt", "srt"])
def job(request, tmp_path: Path) -> Job:
    return Job(tmp_path, request.param, LINES if request.param == "txt" else SRT)


@pytest.fixture
def interrupt(server: FakeServer, command: Command):
    """Runs a command until the server has answered so many requests; afterwards the server answers all again."""

    def run(argv: list[str], answered: int) -> list[str]:
        server.always = stops_after(answered, BROKEN)
        assert command(*argv) == 1
        first, server.always = sent(server)[: 2 * answered], None
        server.requests.clear()
        return first

    return run


@pytest.fixture
def expected(job: Job, command: Command, server: FakeServer) -> bytes:
    """What a command writes that nothing interrupts."""
    assert command(*job.argv) == 0
    assert not job.journal.exists()
    assert sorted(each.name for each in job.source.parent.iterdir()) == [job.source.name, job.target.name]
    whole = job.target.read_bytes()
    job.target.unlink()
    server.requests.clear()
    return whole


@pytest.mark.parametrize("answered", [1, 7, 19])
def test_it_goes_on_after_a_failure(server: FakeServer, command: Command, job: Job, expected, interrupt, answered: int):
    first = interrupt(job.argv, answered)
    what = "lines were written" if job.working == job.target else "texts were translated"
    assert f"{2 * answered} {what}" in command.err
    assert command.err.endswith("and --resume goes on from there\n")
    assert job.journal.exists()
    assert job.target.exists() == (job.working == job.target)
    assert command(*job.argv, "--resume") == 0
    assert job.target.read_bytes() == expected
    assert len(set(first + sent(server))) == len(first + sent(server)) == 40
    assert not job.journal.exists()
    assert not (job.working.exists() and job.working != job.target)


def test_kill_9_at_random_points_loses_and_repeats_nothing(
    server: FakeServer, command: Command, job: Job, expected: bytes
):
    dice = random.Random(3)
    done = list[str]()
    for _ in range(4):
        answered = dice.randrange(1, 5)
        server.always = stops_after(answered, server.hang)
        server.requests.clear()
        with shell(server.address, *job.argv, "--resume") as process:
            server.wait_for_requests(answered + 1)  # the client writes an answer before it sends the next request
            process.kill()
            process.wait()
        done += sent(server)[: 2 * answered]
    server.always = None
    server.requests.clear()
    assert command(*job.argv, "--resume") == 0
    assert job.target.read_bytes() == expected
    done += sent(server)
    assert len(done) == len(set(done)) == 40


def test_wherever_the_files_were_cut_off_the_result_is_the_same(command: Command, job: Job, expected: bytes, interrupt):
    """Without power, a file ends anywhere, and its end may be anything."""
    interrupt(job.argv, 9)
    output, journal = job.working.read_bytes(), job.journal.read_bytes()
    dice = random.Random(1)
    for _ in range(25):
        shorter, kept = dice.randrange(len(output) + 1), dice.randrange(len(journal) + 1)
        garbage = dice.choice([b"", b"\0\0\0", b"x\n"])
        job.working.write_bytes(output[:shorter] + garbage)
        job.journal.write_bytes(journal[:kept])
        assert command(*job.argv, "--resume") == 0
        assert job.target.read_bytes() == expected


def test_a_document_is_translated_in_place(server: FakeServer, command: Command, interrupt, tmp_path: Path):
    job = Job(tmp_path, "srt", SRT)
    assert command(*job.argv) == 0
    job.source.chmod(0o640)
    argv = [*job.argv[:4], str(job.source), *job.argv[5:], "--resume"]
    interrupt(argv, 7)
    assert job.source.read_text() == SRT
    assert command(*argv) == 0
    assert len(sent(server)) == 26
    assert job.source.read_bytes() == job.target.read_bytes()
    assert job.source.stat().st_mode & 0o777 == 0o640
    assert sorted(each.name for each in tmp_path.iterdir()) == ["in.srt", "out.srt"]


def test_without_resume_it_begins_again(server: FakeServer, command: Command, job: Job, expected: bytes, interrupt):
    interrupt(job.argv, 9)
    assert command(*job.argv) == 0
    assert len(sent(server)) == 40
    assert job.target.read_bytes() == expected
    assert not job.journal.exists()


def test_a_document_that_was_finished_but_for_its_journal_is_whole(
    server: FakeServer, command: Command, tmp_path: Path
):
    job = Job(tmp_path, "srt", SRT)
    kept = list[bytes]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journals.Journal, "remove", lambda journal: kept.append(journal.path.read_bytes()))
        assert command(*job.argv) == 0
    whole = job.target.read_bytes()
    job.journal.write_bytes(kept[0])
    server.requests.clear()
    assert command(*job.argv, "--resume") == 0
    assert job.target.read_bytes() == whole
    assert server.requests == []
    assert not job.journal.exists()


def test_the_journal_of_a_large_output_stays_small(
    server: FakeServer, command: Command, job: Job, expected: bytes, interrupt, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("translane_client.cli.files.journal._LARGEST", 300)
    monkeypatch.setattr("translane_client.cli.files.part_writer._SYNC_EVERY", 0.0)
    interrupt(job.argv, 15)
    assert job.journal.stat().st_size < 1200
    assert command(*job.argv, "--resume") == 0
    assert len(sent(server)) == 10
    assert job.target.read_bytes() == expected


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        (["--beam-size", "3"], "--beam-size differs from the command that was interrupted; without --resume, "),
        (["--model", "m"], "--model differs"),
        (["--target-prefix", "a"], "--target-prefix differs"),
    ],
)
def test_another_command_does_not_go_on(command: Command, job: Job, interrupt, argv, problem: str):
    interrupt(job.argv, 3)
    before = job.working.read_bytes()
    command.stderr = io.StringIO()
    assert command(*job.argv, "--resume", *argv) == 1
    assert command.err.startswith(f"translane: {problem}")
    assert job.working.read_bytes() == before


def test_a_changed_input_is_noticed_where_it_was_translated(command: Command, job: Job, interrupt):
    interrupt(job.argv, 3)
    command.stderr = io.StringIO()
    text = job.source.read_text()
    job.source.write_text(text.replace("2", "two", 1))
    assert command(*job.argv, "--resume") == 1
    assert command.err == (
        f"translane: {job.source} has changed since the interruption; without --resume, it is translated anew\n"
    )
    job.source.write_text(text + text[-6:])
    assert command(*job.argv, "--resume") == 0


def test_an_output_without_a_journal_is_left_alone(server: FakeServer, command: Command, job: Job):
    job.target.write_text("of before")
    assert command(*job.argv, "--resume") == 0
    assert job.target.read_text() == "of before"
    assert "is there, and no command that was interrupted: nothing is done" in command.err
    assert server.requests == []


def test_a_command_that_writes_nothing_leaves_nothing(server: FakeServer, command: Command, job: Job):
    server.always = BROKEN
    assert command(*job.argv) == 1
    assert [each.name for each in job.source.parent.iterdir()] == [job.source.name]


def test_two_commands_do_not_write_one_output(server: FakeServer, command: Command, job: Job):
    server.always = stops_after(3, server.hang)
    with shell(server.address, *job.argv) as process:
        server.wait_for_requests(4)
        server.always = None
        assert command(*job.argv, "--resume") == 1
        assert command.err == f"translane: {job.journal}: another command writes this output\n"
        process.kill()
        process.wait()
    assert command(*job.argv, "--resume") == 0


def test_nbest_lines_go_on_with_the_next_number(command: Command, interrupt, tmp_path: Path):
    job = Job(tmp_path, "txt", LINES)
    argv = [*job.argv, "--nbest", "1"]
    assert command(*argv) == 0
    whole = job.target.read_bytes()
    interrupt(argv, 3)
    assert command(*argv, "--resume") == 0
    assert job.target.read_bytes() == whole


@pytest.mark.parametrize(("flags", "why"), [(["--resume"], "--resume needs one"), ([], "it is in the way")])
def test_a_foreign_journal_is_left_alone(command: Command, job: Job, flags: list[str], why: str):
    job.journal.write_text("my diary\n", encoding="utf-8")
    job.working.write_text("")
    assert command(*job.argv, *flags) == 1
    assert f"translane: {job.journal}: not a journal of translane; {why}" in command.err
    assert job.journal.read_text(encoding="utf-8") == "my diary\n"


def test_an_output_that_links_to_itself(job: Job, command: Command):
    job.target.symlink_to(job.target)
    assert command(*job.argv) == 1
    assert "its links lead nowhere" in command.err
