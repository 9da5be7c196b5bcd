"""Files that anybody may have written, that change while they are watched, and that appear complete or not at all."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import pytest

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
from translane_server.core.terminal import MOST_CHARACTERS, printable, shown


def make(kind: str, path: Path) -> None:
    if kind == "folder":
        path.mkdir()
    elif kind == "named pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        os.chdir(path.parent)  # a socket's path is short
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path.name)


@pytest.mark.parametrize("kind", ["folder", "named pipe", "device", "socket"])
def test_what_is_no_file(tmp_path, kind, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "x"
    make(kind, path)
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
    with pytest.raises(ValueError) as caught:
        parse_json(text)
    assert len(str(caught.value)) < 100


def test_json():
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


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "file"
    path.write_text("one")
    return path


@pytest.fixture
def changes(file):
    return FileChanges([file])


def test_a_file_that_stays_has_not_changed(changes):
    assert [changes.look() for _ in range(3)] == [False, False, False]


def test_a_change_is_told_once_when_the_file_stays_the_same(file, changes):
    file.write_text("longer")
    assert [changes.look() for _ in range(4)] == [False, True, False, False]


def test_a_file_that_is_being_written_is_not_told(file, changes):
    for size in range(4, 8):
        file.write_text("x" * size)
        assert not changes.look()
    assert changes.look()


def test_a_change_back_is_not_told(tmp_path, file):
    link, other = tmp_path / "link", tmp_path / "other"
    link.symlink_to(file)
    changes = FileChanges([link])
    other.write_text("two")
    for leads_to in (other, file):
        link.unlink()
        link.symlink_to(leads_to)
        assert not changes.look()
    assert not changes.look()


def test_a_file_that_goes_and_comes_back_is_told_both_times(file, changes):
    file.unlink()
    assert [changes.look() for _ in range(3)] == [False, True, False]
    file.write_text("again")
    assert [changes.look() for _ in range(3)] == [False, True, False]


def test_a_link_that_leads_elsewhere_is_told(tmp_path, file):
    link, other = tmp_path / "link", tmp_path / "other"
    link.symlink_to(file)
    changes = FileChanges([link])
    other.write_text("two")
    link.unlink()
    link.symlink_to(other)
    assert [changes.look() for _ in range(3)] == [False, True, False]


# Files that appear complete or not at all.


def test_the_new_file_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old", encoding="utf-8")
    with replaced_whole(path) as new:
        new.write_text("new", encoding="utf-8")
        assert path.read_text(encoding="utf-8") == "old"
    assert path.read_text(encoding="utf-8") == "new"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def fails_halfway(path: Path) -> None:
    with replaced_whole(path) as new:
        new.write_text("a half", encoding="utf-8")
        raise ZeroDivisionError


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old", encoding="utf-8")
    with pytest.raises(ZeroDivisionError):
        fails_halfway(path)
    assert [(each.name, each.read_text(encoding="utf-8")) for each in tmp_path.iterdir()] == [("file", "old")]


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), replaced_whole(tmp_path / "no" / "file") as new:
        new.write_text("new", encoding="utf-8")


def test_what_a_killed_program_has_left_is_written_over(tmp_path: Path) -> None:
    path = tmp_path / "file"
    (tmp_path / ".file.new").write_text("a longer half", encoding="utf-8")
    with replaced_whole(path) as new:
        new.write_text("new", encoding="utf-8")
    assert [(each.name, each.read_text(encoding="utf-8")) for each in tmp_path.iterdir()] == [("file", "new")]


def test_a_full_disk_is_told_with_the_name_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left on device") as raised, written_whole(tmp_path / "file"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert raised.value.filename == str(tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_several_programs_may_write_the_same_file(tmp_path: Path) -> None:
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
