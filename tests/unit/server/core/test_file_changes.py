"""Changes of files are told once, and only when a file has stopped changing."""

import pytest

from translane_server.core.file_changes import FileChanges


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
