"""Files that appear complete or not at all."""

import errno
import os
from pathlib import Path

import pytest

from translane_server.core.files import remove_unfinished, replaced_whole, written_whole


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
