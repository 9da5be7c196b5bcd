"""Files that appear complete or not at all."""

from pathlib import Path

import pytest

from translane_export.whole_files import written_whole


def test_the_new_file_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old", encoding="utf-8")
    with written_whole(path) as new:
        new.write_text("new", encoding="utf-8")
        assert path.read_text(encoding="utf-8") == "old"
    assert path.read_text(encoding="utf-8") == "new"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def fails_halfway(path: Path) -> None:
    with written_whole(path) as new:
        new.write_text("a half", encoding="utf-8")
        raise ZeroDivisionError


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old", encoding="utf-8")
    with pytest.raises(ZeroDivisionError):
        fails_halfway(path)
    assert [(each.name, each.read_text(encoding="utf-8")) for each in tmp_path.iterdir()] == [("file", "old")]


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), written_whole(tmp_path / "no" / "file") as new:
        new.write_text("new", encoding="utf-8")
