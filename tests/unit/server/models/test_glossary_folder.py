"""Stored glossaries are what the files of a folder are, and a bad file changes nothing."""

import asyncio
import os

import pytest

from helpers.http_calls import until
from helpers.refusals import refusal
from translane.options import Term
from translane_server.core.errors import GlossaryError, SettingsError
from translane_server.models import glossary_folder
from translane_server.models.glossary_folder import GlossaryFolder


def put(folder, name="medical.de.en.tsv", content="Haus\thouse\n"):
    (folder / f".{name}").write_bytes(content if isinstance(content, bytes) else content.encode())
    (folder / f".{name}").rename(folder / name)


def opened(folder):
    glossaries = GlossaryFolder(folder)
    glossaries.load()
    return glossaries


def terms(glossaries, name="medical", source="de", target="en"):
    found = glossaries.current.find(name, source, target)
    return None if found is None else list(found.terms)


def refresh(glossaries):
    for _ in range(2):
        glossaries.refresh()


def test_a_changed_file_is_read_after_it_has_rested(tmp_path):
    put(tmp_path)
    glossaries = opened(tmp_path)
    before = glossaries.current
    put(tmp_path, content="Haus\tbuilding\n")
    glossaries.refresh()
    assert glossaries.current is before
    glossaries.refresh()
    assert terms(glossaries) == [Term("Haus", "building")]
    after = glossaries.current
    refresh(glossaries)
    assert glossaries.current is after
    assert before.find("medical", "de", "en").terms == (Term("Haus", "house"),)


def test_a_bad_file_is_logged_once_and_the_version_before_goes_on(tmp_path, caplog):
    put(tmp_path)
    glossaries = opened(tmp_path)
    put(tmp_path, content="Haus\thouse\nBaum tree\n")
    for _ in range(3):
        refresh(glossaries)
    assert terms(glossaries) == [Term("Haus", "house")]
    (message,) = caplog.messages
    assert message.startswith(f"glossary {tmp_path / 'medical.de.en.tsv'}: line 2: it has no tab")
    assert message.endswith("; the version before goes on")
    put(tmp_path, content="Baum\ttree\n")
    refresh(glossaries)
    assert terms(glossaries) == [Term("Baum", "tree")]


def large(path):
    with path.open("wb") as file:
        file.truncate(1 << 40)


HOSTILE = {
    "a pipe": os.mkfifo,
    "a link to nothing": lambda path: path.symlink_to("nothing"),
    "a binary file": lambda path: path.write_bytes(bytes(range(256)) * 100),
    "a long line": lambda path: path.write_bytes(b"x" * 10_000_000),
    "a large file": large,
    "UTF-16": lambda path: path.write_text("a\tb\n", encoding="utf-16"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_file_is_refused_in_one_sentence(tmp_path, caplog, kind):
    path = tmp_path / "x.de.en.tsv"
    HOSTILE[kind](path)
    message = refusal(GlossaryError, opened, tmp_path)
    assert message.startswith(f"glossary {path}: ")
    assert len(message) < 400
    # while a server runs, it is the same
    path.rename(tmp_path / "away")
    put(tmp_path)
    glossaries = opened(tmp_path)
    (tmp_path / "away").rename(path)
    refresh(glossaries)
    assert terms(glossaries) == [Term("Haus", "house")]
    assert caplog.messages == [message]


@pytest.mark.parametrize("name", ["medical.tsv", "b\udc80d.de.en.tsv", "a\nb.de.en.tsv"])
def test_a_name_without_languages_is_refused(tmp_path, name):
    put(tmp_path, name)
    assert "its name must be NAME.SOURCE.TARGET.tsv" in refusal(GlossaryError, opened, tmp_path)


def test_a_folder_that_is_not_there_is_named(tmp_path):
    problem = "the folder cannot be read: No such file or directory"
    assert f"--glossaries {tmp_path / 'none'}: {problem}" in refusal(SettingsError, opened, tmp_path / "none")


def test_a_folder_that_goes_changes_nothing(tmp_path, caplog):
    folder = tmp_path / "folder"
    folder.mkdir()
    put(folder)
    glossaries = opened(folder)
    folder.rename(tmp_path / "away")
    for _ in range(3):
        refresh(glossaries)
    assert terms(glossaries) == [Term("Haus", "house")]
    assert len(caplog.messages) == 1
    (tmp_path / "away").rename(folder)
    refresh(glossaries)
    assert terms(glossaries) == [Term("Haus", "house")]


def test_files_and_terms_are_bounded(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(glossary_folder, "MOST_FILES", 2)
    monkeypatch.setattr(glossary_folder, "MOST_TERMS", 2)
    put(tmp_path, "a.de.en.tsv")
    put(tmp_path, "README.md", "no glossary")
    put(tmp_path, ".hidden.tsv", b"\xff")
    glossaries = opened(tmp_path)
    put(tmp_path, "b.de.en.tsv", "a\tx\nb\ty\n")
    for _ in range(3):
        refresh(glossaries)
    assert len(glossaries.current) == 1
    assert caplog.text.count("there are 3 terms with it, at most 2 are accepted") == 1
    with pytest.raises(GlossaryError, match=r"b\.de\.en\.tsv: there are 3 terms with it"):
        opened(tmp_path)
    put(tmp_path, "a.de.en.tsv", "# nothing\n")
    refresh(glossaries)
    assert terms(glossaries, "b") == [Term("a", "x"), Term("b", "y")]
    put(tmp_path, "c.de.en.tsv")
    refresh(glossaries)
    assert "there are 3 files, at most 2 are accepted" in caplog.text
    with pytest.raises(GlossaryError, match="there are 3 files"):
        opened(tmp_path)
    (tmp_path / "b.de.en.tsv").unlink()
    refresh(glossaries)
    assert terms(glossaries, "c") == [Term("Haus", "house")]


async def test_watching_goes_on_after_a_bug(tmp_path, monkeypatch, caplog):
    put(tmp_path)
    glossaries = GlossaryFolder(tmp_path, interval=0.001)
    glossaries.load()
    looks = []

    def refresh():
        looks.append(1)
        if len(looks) == 1:
            raise RuntimeError("a bug")

    monkeypatch.setattr(glossaries, "refresh", refresh)
    watching = asyncio.create_task(glossaries.watch())
    await until(lambda: len(looks) >= 3)
    watching.cancel()
    assert "looking at changed files has failed" in caplog.text
