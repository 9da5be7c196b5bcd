"""What Marian writes: settings, vocabularies and arrays, none larger than its file, and containers; no pickle."""

from __future__ import annotations

import contextlib
import io
import json
import pickle
import random
import re
import struct
import tracemalloc
import zipfile
from typing import Any

import numpy as np
import pytest
import torch

from helpers.bundles import SMALL_SIZES
from helpers.hostile_files import bytes_mutant
from helpers.marian_students import FLOAT32, INT8, INTGEMM8, container, lexicon
from helpers.pickled_checkpoints import Calls
from helpers.refusals import refusal
from translane_export.core.errors import ExportError
from translane_export.core.ranges import FixedUnits
from translane_export.model import TransformerConfig
from translane_export.sources.marian_bin import Container, fixed_units, is_container, read_container, read_lexicon
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
        "x\x1b[31m": np.zeros(2),
    }
    np.savez(tmp_path / "a.npz", **arrays)
    found = read_npz(tmp_path / "a.npz")
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert torch.equal(found[name], torch.from_numpy(np.array(array)))


def member(content: bytes, compression=zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        archive.writestr("a.npy", content)
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
    ],
)
def test_what_is_refused(content, message, tmp_path, capsys):
    path = tmp_path / "a.npz"
    path.write_bytes(content)
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


def int8(values, factor):
    return np.array(values, np.int8).tobytes() + struct.pack("<f", factor) + bytes(5)


ARRAYS = [
    ("Wemb", INTGEMM8, (3, 2), int8([1, 2, 3, 4, -5, -6], 2.0)),
    ("decoder_l1_rnn_W", INTGEMM8, (2, 3), int8([1, 2, 3, 4, 5, 6], 4.0)),
    ("decoder_l1_rnn_bf", FLOAT32, (1, 2), struct.pack("<ff", 0.5, -1) + bytes(8)),
    ("special:model.yml", INT8, (5,), b"a: 1\0" + bytes(3)),
]


def test_arrays_are_the_numbers_that_they_stand_for(tmp_path):
    path = tmp_path / "model.bin"
    path.write_bytes(container(ARRAYS))
    assert is_container(path)
    found = read_container(path).arrays
    assert found["Wemb"].tolist() == [[0.5, 1], [1.5, 2], [-2.5, -3]]
    assert found["decoder_l1_rnn_W"].tolist() == [[0.25, 0.75, 1.25], [0.5, 1.0, 1.5]]  # stored [out, in]
    assert found["decoder_l1_rnn_bf"].tolist() == [[0.5, -1]]
    assert found["special:model.yml"].numpy().tobytes() == b"a: 1\0"


def changed(number, **fields):
    old = dict(zip(("name", "kind", "shape", "block"), ARRAYS[number], strict=True))
    return container([*ARRAYS[:number], tuple({**old, **fields}.values()), *ARRAYS[number + 1 :]])


WHOLE = container(ARRAYS)
HUGE = (1 << 62) - 1
BROKEN = {
    "nothing": (b"", "cut off or damaged"),
    "version": (container(ARRAYS, version=2), "no container of Marian's of version 1"),
    "arrays": (struct.pack("<QQ", 1, HUGE) + WHOLE[16:], "and 10,000 is the most that is read"),
    "fewer arrays": (struct.pack("<QQ", 1, 9_999) + WHOLE[16:], "cut off or damaged"),
    "name": (WHOLE[:16] + struct.pack("<Q", HUGE) + WHOLE[24:], "a name is longer"),
    "dimensions": (WHOLE[:32] + struct.pack("<Q", HUGE) + WHOLE[40:], "too many dimensions"),
    "block": (WHOLE[:40] + struct.pack("<Q", HUGE) + WHOLE[48:], "not as many as it says"),
    "cut": (WHOLE[:-1], "not as many as it says"),
    "more": (WHOLE + b"\0", "not as many as it says"),
    "shape": (changed(0, shape=(1 << 30, 1 << 30)), "has 15 bytes"),
    "negative": (changed(0, shape=(-3, -2)), r"is \[-3, -2\], and has"),
    "type": (changed(0, kind=0x4102), "of the type 0x4102, and float32, float16 and intgemm8 are read"),
    "factor": (changed(0, block=int8([0] * 6, 0.0)), "is divided by 0, which is no factor"),
    "no number": (changed(0, block=int8([0] * 6, float("nan"))), "is divided by nan"),
    "twice": (changed(0, name="decoder_l1_rnn_W"), "an array twice"),
}


@pytest.mark.parametrize(("content", "said"), BROKEN.values(), ids=BROKEN)
def test_what_is_wrong_is_said_and_takes_no_memory(tmp_path, content, said):
    path = tmp_path / "model.bin"
    path.write_bytes(content)
    tracemalloc.start()
    with pytest.raises(ExportError, match=said):
        read_container(path)
    assert tracemalloc.get_traced_memory()[1] < 1 << 21
    tracemalloc.stop()


def test_no_changed_byte_does_more_than_be_refused(tmp_path):
    path, pick = tmp_path / "model.bin", random.Random(1)
    for _ in range(1_500):
        content = bytearray(WHOLE)
        for _ in range(pick.randint(1, 4)):
            content[pick.randrange(len(content))] = pick.choice((0, 1, 0x7F, 0x80, 0xFF, pick.randrange(256)))
        path.write_bytes(content[: pick.choice((len(content), pick.randrange(len(content))))])
        try:
            found = read_container(path).arrays
        except ExportError:
            continue
        assert sum(tensor.numel() for tensor in found.values()) <= len(WHOLE)
        assert all(isinstance(tensor, torch.Tensor) for tensor in found.values())


LISTS = [[], [], [7, 9], [20], [21, 30, 31]]


@pytest.mark.parametrize(
    ("is_shared", "source", "expected"),
    [
        (False, [2, 0], [0, 1, 2, 3, 4, 5, 7, 9]),
        (True, [4, 0], [0, 1, 2, 3, 4, 21, 30, 31]),
        (False, [4, 3, 2], [*range(12), 20, 21, 30, 31]),
        (False, [0], [0, 1, 2, 3, 4, 5, 6, 7]),
    ],
)
def test_a_sentence_s_list_is_marian_s(tmp_path, is_shared, source, expected):
    path = tmp_path / "lex.50.50.deen.s2t.bin"
    path.write_bytes(lexicon(LISTS))
    found = read_lexicon(path, 5, 40, is_shared=is_shared)
    assert found.tokens(source).tolist() == expected
    assert found.tokens(source, [39]).tolist() == [*expected, 39]


@pytest.mark.parametrize(
    ("content", "sizes", "said"),
    [
        (b"", (5, 40), "no binary shortlist"),
        (lexicon(LISTS)[:-1], (5, 40), "cut off or damaged"),
        (lexicon(LISTS, checksum=1), (5, 40), "its checksum is another one"),
        (lexicon(LISTS), (6, 40), "has lists of 5 pieces, and the source's vocabulary has 6"),
        (lexicon(LISTS), (5, 31), "a piece that is none of the 31"),
        (lexicon(LISTS, first=0), (5, 40), "a piece that is none of the 40"),
    ],
)
def test_a_shortlist_that_is_wrong(tmp_path, content, sizes, said):
    path = tmp_path / "lex.50.50.deen.s2t.bin"
    path.write_bytes(content)
    with pytest.raises(ExportError, match=said):
        read_lexicon(path, *sizes, is_shared=False)


PARTS = ["encoder_l1_self_Wq", "encoder_l1_self_Wk", "encoder_l1_self_Wv", "decoder_l1_rnn_W"]
ALPHAS = dict(zip(PARTS, (4.0, 4.0, 4.0, 16.0), strict=True)) | {"none": 2.0}
UNITS = dict(zip([*PARTS, "Wemb"], (0.5, 0.25, 0.125, 0.0625, 0.75), strict=True))


def int8_of(alphas, units):
    ours = {f"encoder.layers.*.self_attention.{part}_proj.weight": f"encoder_l**_self_W{part}" for part in "qkv"}
    ours |= {"decoder.layers.*.ssru.cell_proj.weight": "decoder_l**_rnn_W"}
    stored = Container({f"{name}_QuantMultA": torch.tensor([alpha]) for name, alpha in alphas.items()}, units)
    return fixed_units(stored, ours, TransformerConfig(**SMALL_SIZES | {"encoder_layers": 1, "decoder_layers": 1}))


@pytest.mark.parametrize("name", ["none", "Wemb", "decoder_Wemb"])
def test_units_of_products_are_those_of_the_file(name):
    split = name == "decoder_Wemb"
    tables = {"encoder_Wemb": 0.5, "decoder_Wemb": 0.75} if split else {"Wemb": 0.75}
    units = {part: UNITS[part] for part in PARTS} | tables
    found = int8_of({part: ALPHAS[part] for part in PARTS} | {name: 2.0}, units)
    assert found.encoder == {
        "embedding.tokens.weight": FixedUnits(0.0, (0.5 if split else 0.75,)),
        "packed.0.weight": FixedUnits(0.25, (0.5, 0.25, 0.125)),
    }
    assert found.decoder == {
        "output_projection.weight": FixedUnits(0.5, (0.75,)),
        "stack.layers.0.ssru.cell_proj.weight": FixedUnits(0.0625, (0.0625,)),
    }
    assert found.keys_values == {}


def test_a_file_without_all_of_int8_has_none_of_it():
    assert int8_of(ALPHAS, UNITS)
    for name in ALPHAS:
        assert int8_of({other: each for other, each in ALPHAS.items() if other != name}, UNITS) is None
    for name in UNITS:
        assert int8_of(ALPHAS, {other: each for other, each in UNITS.items() if other != name}) is None


@pytest.mark.parametrize("alpha", ["none", "decoder_ff_logit_out_W"])
def test_an_output_table_of_its_own_has_its_own_unit(alpha):
    names = {"output_projection.weight": ("decoder_ff_logit_out_W", "Wemb")}
    arrays = {f"{alpha}_QuantMultA": torch.tensor([2.0]), "decoder_ff_logit_out_W": torch.zeros(2, 2)}
    config = TransformerConfig(**SMALL_SIZES)
    found = fixed_units(Container(arrays, {"Wemb": 0.75, "decoder_ff_logit_out_W": 0.25}), names, config)
    assert found is not None
    assert found.decoder == {
        "embedding.tokens.weight": FixedUnits(0.0, (0.75,)),
        "output_projection.weight": FixedUnits(0.5, (0.25,)),
    }
    assert fixed_units(Container(arrays, {"Wemb": 0.75}), names, config) is None


@pytest.mark.parametrize(
    ("name", "alpha", "said"),
    [
        ("encoder_l1_self_Wk", 5.0, "encoder_l1_self_Wq, encoder_l1_self_Wk, .* have different units"),
        ("decoder_l1_rnn_W", 0.0, "decoder_l1_rnn_W_QuantMultA is 0, which"),
        ("none", float("nan"), "none_QuantMultA is nan, which"),
        ("none", -1.0, "none_QuantMultA is -1, which"),
    ],
)
def test_units_that_are_none_are_refused(name, alpha, said):
    with pytest.raises(ValueError, match=said):
        int8_of({**ALPHAS, name: alpha}, UNITS)
