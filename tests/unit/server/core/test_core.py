"""What all rooms stand on: files, terminals, estimates of quality, budgets of time, and shared memory."""

import errno
import math
import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.refusals import refusal
from translane_server.core.budget import Budget, OverBudgetError
from translane_server.core.file_changes import FileChanges
from translane_server.core.files import (
    check_regular,
    open_regular,
    parse_json,
    read_regular,
    remove_unfinished,
    replaced_whole,
    written_whole,
)
from translane_server.core.machine import shared_memory
from translane_server.core.quality import (
    COPY,
    EMPTY,
    RATIO,
    Calibration,
    combined_quality,
    estimated_quality,
    suspicion,
)
from translane_server.core.terminal import MOST_CHARACTERS, printable, shown


def a_socket(path):
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path.name)  # which must be short


NO_FILES: dict[str, Any] = {
    "folder": Path.mkdir,
    "named pipe": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "socket": a_socket,
}


@pytest.mark.parametrize("kind", NO_FILES)
def test_what_is_no_file(tmp_path, kind, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "x"
    NO_FILES[kind](path)
    for read in (check_regular, open_regular, read_regular):
        with pytest.raises(OSError, match=f"it is a {kind}, not a file"):
            read(path)


def test_a_file_is_read_as_far_as_it_may_be(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"12345")
    assert read_regular(path, 5) == b"12345"
    with pytest.raises(OSError, match="it has 5 bytes, and at most 4 are read"):
        read_regular(path, 4)
    assert b"processor" in read_regular(Path("/proc/cpuinfo"))  # whose size is 0
    with pytest.raises(OSError, match="at most 10 are read"):
        read_regular(Path("/proc/cpuinfo"), 10)
    with pytest.raises(OSError, match="no file has such a name"):
        read_regular(tmp_path / "a\0b")
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "none")


@pytest.mark.parametrize("text", [b"[" * 100_000, b'{"a":' * 100_000, b"[1", b"", b"\xff", b'"\\ud800"', b"9" * 5000])
def test_json_that_is_none(text):
    assert len(refusal(ValueError, parse_json, text)) < 100
    assert parse_json('{"a": [1, 2.5, null, "é"]}'.encode()) == {"a": [1, 2.5, None, "é"]}


def test_text_for_a_terminal():
    assert printable("Größe 大小") == "Größe 大小"
    assert printable("\x1b[31m\x9b\r\n\u202e\x00") == r"\x1b[31m\x9b\r\n\u202e\x00"
    assert printable(printable("\x1b")) == printable("\x1b")
    long = printable("a" * 5000 + "end")
    assert len(long) == MOST_CHARACTERS
    assert long.endswith("aend")


def test_values_for_a_sentence():
    assert shown("\x1b") == r"'\x1b'"
    assert shown(10**5000) == "a number of more than 60 digits"
    assert shown([None] * 100) == "a list of 100 items"
    assert len(shown("x" * 10_000)) < 80


# Changes of files are told once, and only when a file has stopped changing.


def link_to(name):
    def change(path):
        path.unlink()
        path.symlink_to(path.with_name(name))

    return change


@pytest.mark.parametrize(
    ("edits", "told"),
    [
        ([None, None], [False, False]),
        (["longer", None, None], [False, True, False]),
        (["longer", "longer still", None], [False, False, True]),
        ([Path.unlink, None, "again", None], [False, True, False, True]),
        ([link_to("other"), None, None], [False, True, False]),
        ([link_to("other"), link_to("first"), None], [False, False, False]),
    ],
    ids=["nothing", "a change", "while it is written", "it goes and comes", "it leads elsewhere", "and back"],
)
def test_a_change_is_told_once_and_when_the_file_rests(tmp_path, edits, told):
    for name in ("first", "other"):
        (tmp_path / name).write_text(name)
    path = tmp_path / "file"
    path.symlink_to("first")
    changes = FileChanges([path])
    for edit, expected in zip(edits, told, strict=True):
        if isinstance(edit, str):
            path.write_text(edit)
        elif edit:
            edit(path)
        assert changes.look() == expected


def test_the_new_file_takes_the_place_of_the_old_one_or_nothing_is_left_of_it(tmp_path):
    path = tmp_path / "file"
    path.write_text("old", encoding="utf-8")
    (tmp_path / ".file.new").write_text("a longer half of a killed program", encoding="utf-8")
    with replaced_whole(path) as new:
        new.write_text("new", encoding="utf-8")
        assert path.read_text(encoding="utf-8") == "old"
    with pytest.raises(UnicodeEncodeError), replaced_whole(path) as new:
        new.write_text("a half\udc80", encoding="utf-8")
    with pytest.raises(FileNotFoundError), replaced_whole(tmp_path / "no" / "file") as new:
        new.write_text("new", encoding="utf-8")
    assert [(each.name, each.read_text(encoding="utf-8")) for each in tmp_path.iterdir()] == [("file", "new")]


def test_a_full_disk_is_told_with_the_name_of_the_file(tmp_path):
    with pytest.raises(OSError, match="No space left on device") as raised, written_whole(tmp_path / "file"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert raised.value.filename == str(tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_several_programs_may_write_the_same_file(tmp_path):
    path = tmp_path / "file"
    with written_whole(path) as one, written_whole(path) as other:  # two machines at once
        one.write(b"one")
        other.write(b"other")
        assert not path.exists()
    assert path.read_bytes() == b"one"
    with pytest.raises(TypeError), written_whole(path) as file:
        file.write("half")  # type: ignore[call-overload]
    assert path.read_bytes() == b"one"
    assert list(tmp_path.iterdir()) == [path]
    (tmp_path / ".file.1234.new").touch()
    remove_unfinished(tmp_path)
    assert list(tmp_path.iterdir()) == [path]


# Rounding gives a certain token slightly more than 0, and a banned token has no probability at all.
LOG_PROBS = st.lists(st.floats(max_value=1e-6) | st.just(-math.inf), max_size=40)
CALIBRATIONS = st.builds(Calibration, st.floats(min_value=1e-6, max_value=10), st.floats(-100, 100))


@given(LOG_PROBS, CALIBRATIONS)
def test_an_estimate_is_between_0_and_1(log_probs, calibration):
    assert 0 <= estimated_quality(log_probs, calibration) <= 1


@given(LOG_PROBS.filter(len), CALIBRATIONS, st.data())
def test_a_more_probable_token_never_lowers_the_estimate(log_probs, calibration, data):
    place = data.draw(st.integers(0, len(log_probs) - 1))
    higher = data.draw(st.floats(min_value=max(log_probs[place], -1000), max_value=1e-6))
    raised = [*log_probs[:place], higher, *log_probs[place + 1 :]]
    assert estimated_quality(raised, calibration) >= estimated_quality(log_probs, calibration) - 1e-12


def test_without_calibration_it_is_the_mean_probability():
    assert estimated_quality([math.log(0.9), math.log(0.4), math.log(0.2)]) == pytest.approx(0.5)
    assert estimated_quality([0.0]) == pytest.approx(0.999)
    assert estimated_quality([-math.inf]) == pytest.approx(0.001)
    assert estimated_quality([], Calibration(3, -50)) == combined_quality([]) == 1, "nothing can be wrong"


@pytest.mark.parametrize(
    ("source", "translation", "pieces", "max_ratio", "expected"),
    [
        ("一", "one", (2, 2), 1.0, ""),
        ("一", "", (2, 1), math.inf, EMPTY),
        ("a", "a", (2, 2), math.inf, COPY),
        ("一", "one two", (2, 4), 2.0, ""),
        ("一", "one two", (2, 5), 2.0, RATIO),
        ("一二", "one", (5, 2), 2.0, RATIO),
        ("一", "one", (2, 0), math.inf, ""),
    ],
)
def test_the_first_rule_that_fits_is_told(source, translation, pieces, max_ratio, expected):
    of_source, of_translation = pieces
    assert suspicion(source, translation, of_source, of_translation, max_ratio) == expected


def test_work_may_go_on_for_its_seconds_from_its_start():
    now = 5.0
    budget = Budget(2.0, clock=lambda: now)
    now = 100.0
    budget.start()
    now = 102.0
    budget.check()
    now = 102.1
    with pytest.raises(OverBudgetError):
        budget.check()


def test_time_in_which_the_thread_waits_does_not_count():
    budget = Budget(0.2)
    budget.start()
    time.sleep(0.3)
    budget.check()


def process(folder, pid, parent, kilobytes):
    (folder / str(pid)).mkdir()
    (folder / str(pid) / "status").write_text(f"Name:\tx\nPPid:\t{parent}\n")
    (folder / str(pid) / "smaps_rollup").write_text(f"00-ff\nRss: 9 kB\nPss:   {kilobytes} kB\nPss_Dirty: 1 kB\n")


def test_processes_and_their_parents_count_once(tmp_path):
    process(tmp_path, 10, os.getpid(), 100)
    process(tmp_path, 11, 10, 7)
    process(tmp_path, 12, 10, 8)
    process(tmp_path, os.getpid(), 1, 5000)
    assert shared_memory([11, 12, -1, 99], tmp_path) == 115 * 1024
    assert shared_memory([os.getppid()]) > 0
