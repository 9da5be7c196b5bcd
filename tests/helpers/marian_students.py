"""The Marian students beside the checkout, and what fxtranslate and a reference in NumPy make of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

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
