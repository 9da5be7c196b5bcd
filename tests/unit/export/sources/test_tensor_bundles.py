"""Checkpoints of TensorFlow: a file that TensorFlow wrote, and files that are wrong."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from helpers.tensor_bundle_files import MAGIC, entry, field, nested, table, varint, write_tensor_bundle
from translane_export.errors import ExportError
from translane_export.sources.tensor_bundles import read_tensor_bundle

WRITTEN = Path(__file__).parents[3] / "data" / "opennmt_tf" / "types"
ARRAYS = {f"part/{number}/kernel": np.full((2, 3), number, np.float32) for number in range(100)}


@pytest.fixture
def prefix(tmp_path):
    write_tensor_bundle(tmp_path / "ckpt-1", ARRAYS)
    return tmp_path / "ckpt-1"


def test_what_tensorflow_wrote():
    expected = json.loads((WRITTEN / "expected.json").read_text())
    found = read_tensor_bundle(WRITTEN / "ckpt", "|".join(expected))
    assert found.keys() == expected.keys()
    for name, (dtype, values) in expected.items():
        assert found[name].dtype == getattr(torch, dtype)
        assert found[name].tolist() == values
    with pytest.raises(ExportError, match="the tensor 'text' is in slices or no plain numbers"):
        read_tensor_bundle(WRITTEN / "ckpt", "text")


def test_tensors_in_several_blocks(prefix):
    found = read_tensor_bundle(prefix, "part/.*")
    assert {name: tensor.numpy().tolist() for name, tensor in found.items()} == {
        name: array.tolist() for name, array in ARRAYS.items()
    }
    assert read_tensor_bundle(prefix, r"part/7/\w+").keys() == {"part/7/kernel"}
    assert read_tensor_bundle(prefix, "other") == {}


def test_an_empty_tensor(tmp_path):
    write_tensor_bundle(tmp_path / "ckpt-1", {"none": np.zeros((0, 3), np.float32)})
    assert read_tensor_bundle(tmp_path / "ckpt-1", "none")["none"].shape == (0, 3)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (entry(1, (2, 3), 0, 20), r"is \[2, 3\], and has 20 bytes"),
        (entry(1, (2, 3), 10_000, 24), "it is cut off: the tensor 'part/1/kernel' ends at byte 10,024"),
        (entry(1, (1 << 40, 1 << 40), 0, 1 << 61), "has 2,305,843,009,213,693,952 bytes"),
        (entry(1, (1 << 30,), 0, 1 << 32), "it is cut off: it has 2,400 bytes, and its index tells of 4,294,96"),
        (entry(1, (2, 3), 0, 24, shard=3), "is in file 3, and there are 1"),
        (entry(7, (), 0, 24), "is in slices or no plain numbers"),
        (entry(1, (2, 3), 0, 24, more=nested(7, b"")), "is in slices or no plain numbers"),
        (entry(1, (1,) * 9, 0, 4), "a tensor has more than 8 dimensions"),
        (field(1, 1) + field(2, 3), "a field is of another kind"),
        (field(1, 1) + nested(5, b"x"), "a size is no size"),
        (b"\x0b", "a field is of no known kind"),
        (b"\x12\x7f", "a field is cut off"),
        (b"\x08" + b"\xff" * 11, "a number has no end"),
    ],
)
def test_an_entry_that_is_wrong(tmp_path, value, message):
    write_tensor_bundle(tmp_path / "ckpt-1", ARRAYS, {"part/1/kernel": value})
    with pytest.raises(ExportError, match=message):
        read_tensor_bundle(tmp_path / "ckpt-1", "part/.*")


def refused(prefix, content, message):
    prefix.with_name("ckpt-1.index").write_bytes(content)
    with pytest.raises(ExportError, match=message):
        read_tensor_bundle(prefix, "part/.*")


def test_a_table_that_is_wrong(prefix):
    good = prefix.with_name("ckpt-1.index").read_bytes()
    header = (b"", field(1, 1))
    refused(prefix, b"", r"ckpt-1.index: it is empty, not a checkpoint of TensorFlow")
    refused(prefix, good[:-1], "it is no index of a checkpoint, or it is cut off")
    refused(prefix, good[1000:], "a block is not within it")
    refused(prefix, table([header], compression=1), "its blocks are compressed")
    refused(prefix, table([]), "its header is missing or damaged")
    refused(prefix, table([(b"", field(1, 0))]), "its header is missing or damaged")
    refused(prefix, table([(b"", field(1, 1) + field(2, 1))]), "its numbers are big-endian")
    refused(prefix, table([header, (b"part/1", entry(1, (), 0, 4)), (b"part/1", b"")]), "the tensor 'part/1' twice")
    refused(prefix, table([header, (b"p" * 2000, b"")], size=10_000), "an entry is not within its block")
    end = varint(0) + varint(0) + varint(0) + varint(9)
    refused(prefix, bytes([0] * 5 + [9] + [0] * 14) + end.ljust(40, b"\0") + MAGIC.to_bytes(8, "little"), "is damaged")


def test_many_tensors_are_refused(prefix, monkeypatch):
    monkeypatch.setattr("translane_export.sources.tensor_bundles._MOST_ENTRIES", 99)
    with pytest.raises(ExportError, match="it has more than 99 tensors"):
        read_tensor_bundle(prefix, "part/1/kernel")


def test_files_that_are_missing(prefix, tmp_path):
    with pytest.raises(ExportError, match=r"ckpt-2\.index: the file is missing"):
        read_tensor_bundle(tmp_path / "ckpt-2", ".*")
    prefix.with_name("ckpt-1.data-00000-of-00001").unlink()
    with pytest.raises(ExportError, match=r"ckpt-1\.data-00000-of-00001: the file is missing"):
        read_tensor_bundle(prefix, ".+")
