"""Files that anybody may have written: read whole, or refused with a reason."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from translane_server.core.files import check_regular, open_regular, parse_json, read_regular
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
