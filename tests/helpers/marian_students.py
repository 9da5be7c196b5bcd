"""The Marian students beside the checkout, and what fxtranslate and a reference in NumPy make of them."""

import shutil
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

FLOAT32, FLOAT16, INT8, INTGEMM8 = 0x404, 0x402, 0x101, 0x4101
Array = tuple[str, int, Sequence[int], bytes]

NAMES = ("de-en-shared", "zh-en-split")
SHARED = next(
    (each / "shared" for each in Path(__file__).parents if (each / "shared/data/marian-students").is_dir()),
    Path("shared"),
)
STUDENTS = SHARED / "data/marian-students"
needs_students = pytest.mark.skipif(not STUDENTS.is_dir(), reason="the Marian students are not beside the checkout")


def student_folder(folder: Path, name: str, *, model: str = "model.bin", unknowns: bool = False) -> Path:
    """A folder as Firefox ships it; with `unknowns`, unknown words are generated, as fxtranslate does."""
    folder.mkdir(parents=True)
    pair = name[:2] + name[3:5]
    target = f"model.{pair}.intgemm.alphas.bin" if model.endswith(".bin") else model
    shutil.copyfile(STUDENTS / name / model, folder / target)
    for path in (STUDENTS / name).glob("*.spm"):
        shutil.copyfile(path, folder / f"{path.stem}.{pair}.spm")
    if unknowns:
        (folder / "decoder.yml").write_text("allow-unk: true\n")
    return folder


def recorded(name: str) -> list[tuple[str, str]]:
    """Sources, and what fxtranslate 0.5.0 makes of them."""
    lines = (STUDENTS / name / "expected.tsv").read_text(encoding="utf-8").splitlines()
    return [(source, target) for source, _, target in (line.partition("\t") for line in lines)]


def lexicon(lists: Sequence[Sequence[int]], first: int = 4, checksum: int | None = None) -> bytes:
    """A binary shortlist of Marian's: the targets of each source piece, of 50 at most."""
    offsets = np.cumsum([0, *map(len, lists)])
    flat = np.array([each for tokens in lists for each in tokens], "<u4")
    body = struct.pack("<QQQQ", first, 50, len(offsets), len(flat)) + offsets.astype("<u8").tobytes() + flat.tobytes()
    found = 0
    for value in np.frombuffer(body, "<u8", len(body) // 8).tolist():
        found ^= (value + 0x9E3779B9 + ((found << 6) & (1 << 64) - 1) + (found >> 2)) & (1 << 64) - 1
    return struct.pack("<QQ", 0xF11A48D5013417F5, found if checksum is None else checksum) + body


def container(arrays: Sequence[Array], version: int = 1, gap: int = 8) -> bytes:
    """The container of arrays: name, type, shape and block of each."""
    heads = [struct.pack("<QQQQ", len(name) + 1, kind, len(shape), len(block)) for name, kind, shape, block in arrays]
    shapes = [struct.pack(f"<{len(shape)}i", *shape) for _, _, shape, _ in arrays]
    start = [struct.pack("<QQ", version, len(arrays)), *heads, *(f"{name}\0".encode() for name, *_ in arrays), *shapes]
    return b"".join([*start, struct.pack("<Q", gap), bytes(gap), *(block for *_, block in arrays)])


def tiny_student(folder: Path, width: int = 16, *, int8: bool = False) -> Path:
    """A student of one layer a side with random weights, which soon end a translation: in float32, or as int8."""
    student_folder(folder, "de-en-shared")
    square, row, pieces = (width, width), (1, width), 2000
    shapes: dict[str, tuple[int, int]] = {"Wemb": (pieces, width), "decoder_ff_logit_out_b": (1, pieces)}
    shapes |= {"decoder_l1_rnn_W": square, "decoder_l1_rnn_Wf": square, "decoder_l1_rnn_bf": row}
    for part in ("encoder_l1_self", "decoder_l1_context"):
        shapes |= {f"{part}_{kind}{letter}": square if kind == "W" else row for kind in "Wb" for letter in "qkvo"}
    for part in ("encoder_l1_ffn", "decoder_l1_ffn"):
        shapes |= {f"{part}_W1": square, f"{part}_b1": row, f"{part}_W2": square, f"{part}_b2": row}
    norms = (
        "encoder_l1_self_Wo",
        "encoder_l1_ffn_ffn",
        "decoder_l1_rnn_ffn",
        "decoder_l1_context_Wo",
        "decoder_l1_ffn_ffn",
    )
    shapes |= {f"{norm}_ln_{kind}": row for norm in norms for kind in ("scale", "bias")}
    draw = np.random.default_rng(5)
    arrays = {name: draw.standard_normal(shape).astype("<f4") * np.float32(0.3) for name, shape in shapes.items()}
    arrays["decoder_ff_logit_out_b"][0, 0] = 4
    settings = {"type": "transformer", "transformer-decoder-autoreg": "rnn", "dec-cell": "ssru", "dim-emb": width}
    settings |= {"enc-depth": 1, "dec-depth": 1, "transformer-heads": 2, "transformer-dim-ffn": width}
    settings |= {"transformer-ffn-activation": "relu", "transformer-postprocess": "dan"}
    text = "".join(f"{name}: {value}\n" for name, value in settings.items()).encode() + b"\0"
    stored: list[Array] = []
    for name, array in sorted(arrays.items()):
        if int8 and (name == "Wemb" or "_W" in name):
            units = np.round(array * (127 / np.abs(array).max())).astype("i1")
            block = (units if name == "Wemb" else units.T).tobytes() + (127 / np.abs(array).max()).tobytes()
            stored.append((name, INTGEMM8, array.shape, block))
            alpha = f"{'none' if name == 'Wemb' else name}_QuantMultA"
            stored.append((alpha, FLOAT32, (1,), np.float32(32).tobytes()))
        else:
            stored.append((name, FLOAT32, array.shape, array.tobytes()))
    stored.append(("special:model.yml", INT8, (len(text),), text))
    (folder / "model.deen.intgemm.alphas.bin").write_bytes(container(stored))
    return folder
