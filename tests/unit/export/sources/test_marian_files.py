"""What Marian writes: settings and vocabularies; and arrays as numbers: no pickle, nothing larger than its file."""

from __future__ import annotations

import contextlib
import io
import json
import pickle
import random
import re
import zipfile
from typing import Any

import numpy as np
import pytest
import torch

from helpers.hostile_files import bytes_mutant
from helpers.pickled_checkpoints import Calls
from helpers.refusals import refusal
from translane_export.core.errors import ExportError
from translane_export.sources.marian_files import read_ids, read_npz, read_settings


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb", "line 2 is no setting"),
        ("- 1", "line 1 is no setting"),
        ("a: !!python/object/apply:os.getpid []", "line 1 is no setting"),
        ("a: &a [1]\nb: *a", "line 2 is no setting"),
        ("a: " + "[" * 10_000, "it is no YAML"),
        ("a: \x07", "it is no YAML"),
        ("a: " + "1" * 300_000, "it has 300,003 characters, and at most 262,144 are read"),
        ("a: " + "1" * 200_000, "a value cannot be read"),
        ('a: "' + "\\" * 200_000, "line 1 is no setting"),
    ],
)
def test_what_is_no_list_of_settings(text, message):
    with pytest.raises(ValueError, match=message):
        read_settings(text)


@pytest.mark.timeout(20)
def test_a_text_of_digits_is_read_at_once():
    assert read_settings("a: " + "1" * 200_000 + "x")["a"].endswith("1x")


def test_ids_are_those_of_yaml():
    pieces = ["</s>", "<unk>", "\u2581a", "a:b", '\\"', "it's", ">>fra<<", *":'\"#-\u2028\x850"]
    text = "".join(f"{json.dumps(piece, ensure_ascii=False)}: {id_}\n" for id_, piece in enumerate(pieces))
    assert read_ids(text) == {piece: id_ for id_, piece in enumerate(pieces)}
    assert read_ids("a: 0\n'it''s': 1\n\"\\u2581b\": 2\n\n") == {"a": 0, "it's": 1, "\u2581b": 2}
    assert read_ids("a: 0\r\nb: 1\r\n") == {"a": 0, "b": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 0\nb\n", "line 2 is no piece"),
        ("a: -1", "line 1 is no"),
        ("a: 0\na: 1", "line 2 has a piece of a line before"),
    ],
)
def test_what_is_no_vocabulary(text, message):
    with pytest.raises(ValueError, match=message):
        read_ids(text)


def test_any_text_is_read_or_refused():
    pick = random.Random(3)
    for _ in range(3000):
        text = "".join(
            pick.choices(["a", ":", " ", "\n", "- ", '"', "\\", "'", "[", "]", "#", "1", "\\U00110000"], k=12)
        )
        for read in (read_settings, read_ids):
            with contextlib.suppress(ValueError):
                read(text)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("written", "name"),
    [
        ('"' + "\\" * 50_000 + '"', "\\" * 25_000),
        ("'" * 50_002, "'" * 25_000),
        ("a" * 100_000, "a" * 100_000),
        ("a" + " " * 100_000 + "b", "a" + " " * 100_000 + "b"),
        ("1" * 100_000, "1" * 100_000),
    ],
    ids=["backslashes", "quotes", "letters", "spaces", "digits"],
)
def test_a_long_line_takes_no_long_time_and_loses_nothing(written, name):
    assert read_ids(f"{written}: 1") == {name: 1}
    with pytest.raises(ValueError, match="line 1 is no"):
        read_ids(written[:-1])


def test_numbers_are_numpys(tmp_path):
    arrays: dict[str, Any] = {
        "a": np.arange(6, dtype=np.float32).reshape(2, 3),
        "special:b": np.frombuffer(b"text\0", np.int8),
        "c": np.float64(2.5),
        "half": np.ones((1, 1, 2), np.float16),
        "none": np.zeros((0, 4), np.float32),
    }
    np.savez(tmp_path / "a.npz", **arrays)
    found = read_npz(tmp_path / "a.npz")
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert torch.equal(found[name], torch.from_numpy(np.array(array)))


def member(content: bytes, name="a.npy", compression=zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        archive.writestr(name, content)
    return file.getvalue()


def npy(array) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def huge_header() -> bytes:
    text = b"{'descr': '<f4', 'fortran_order': False, 'shape': (100000000000, 100000), }".ljust(118 - 1) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "it is empty, not a NumPy archive"),
        (b"\x93NUMPY\x01\x00", "it is damaged, or no NumPy archive"),
        (pickle.dumps({"a": 1}), "it is damaged, or no NumPy archive"),
        (b"version https://git-lfs.github.com/spec/v1\n", "it is a pointer of git-lfs"),
        (b"<!DOCTYPE html><html>", "it is an HTML page"),
        (
            member(npy(np.array([Calls(print, "this ran")], dtype=object))),
            "the array 'a' holds '|O', and only numbers of float32",
        ),
        (member(npy(np.zeros(2, dtype="<U3"))), "the array 'a' holds '<U3'"),
        (member(npy(np.zeros(2, dtype=np.complex64))), "the array 'a' holds '<c8'"),
        (member(npy(np.zeros(2, dtype=[("x", "<f4")]))), "the array 'a' holds "),
        (member(npy(np.asfortranarray(np.zeros((2, 3))))), "the array 'a' is stored by columns"),
        (member(npy(np.zeros(1 << 20)), compression=zipfile.ZIP_DEFLATED), "its arrays are compressed"),
        (member(npy(np.zeros(4))[:-8]), r"the array 'a' is \[4\], and has 24 bytes"),
        (member(huge_header()), r"the array 'a' is \[100000000000, 100000\], and has 0 bytes"),
        (member(b"\x93NUMPY\x03\x00" + npy(np.zeros(2))[8:]), "the array 'a' has version 3.0"),
        (member(b"plain text"), "it is damaged, or no NumPy archive"),
        (member(npy(np.zeros(2)), name="x\x1b[31m.npy") + b"", None),
    ],
)
def test_what_is_refused(content, message, tmp_path, capsys):
    path = tmp_path / "a.npz"
    path.write_bytes(content)
    if message is None:
        assert len(read_npz(path)) == 1
        return
    assert re.search(message, refusal(ExportError, read_npz, path))
    assert "this ran" not in capsys.readouterr().out


def test_members_that_overlap_take_no_more_than_the_file(tmp_path):
    """Many names for the same bytes, as zip bombs without compression have them."""
    content = npy(np.zeros(1000, np.float32))
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a0.npy", content)
        for number in range(1, 500):
            again = zipfile.ZipInfo(f"a{number}.npy")
            again.CRC, again.file_size, again.compress_size = archive.filelist[0].CRC, len(content), len(content)
            again.header_offset = 0
            archive.filelist.append(again)
            archive.NameToInfo[again.filename] = again
        setattr(archive, "_didModify", True)  # noqa: B010
    (tmp_path / "a.npz").write_bytes(file.getvalue())
    with pytest.raises(ExportError, match="its arrays take more bytes than the file has"):
        read_npz(tmp_path / "a.npz")


def test_damaged_files_are_one_sentence(tmp_path):
    np.savez(tmp_path / "good.npz", a=np.ones((3, 4), np.float32), b=np.frombuffer(b"x: 1\n", np.int8))
    good, errors = (tmp_path / "good.npz").read_bytes(), []
    for seed in range(300):
        path = tmp_path / "bad.npz"
        path.write_bytes(bytes_mutant(random.Random(seed), good))
        try:
            read_npz(path)
        except ExportError as error:
            errors.append(str(error))
    assert len(errors) > 150
    assert all(error.isprintable() for error in errors)
