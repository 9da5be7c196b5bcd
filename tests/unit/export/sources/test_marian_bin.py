"""Containers of Marian's: what they say is checked before it costs anything."""

import random
import struct
import tracemalloc

import numpy as np
import pytest
import torch

from helpers.bundles import SMALL_SIZES
from helpers.marian_students import FLOAT32, INT8, INTGEMM8, container, lexicon
from translane_export.core.errors import ExportError
from translane_export.core.ranges import FixedUnits
from translane_export.model import TransformerConfig
from translane_export.sources.marian_bin import Container, fixed_units, is_container, read_container, read_lexicon


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
