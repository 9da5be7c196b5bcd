"""How much smaller a model of fewer pieces is: OPUS-MT's vocabulary, and the pieces of Tatoeba's sentences.

    python -m benchmarks.runs.narrowing

Needs OPUS-MT zh-en without its weights, Tatoeba and FLORES-200 beside the repository (see benchmarks/places.py). The
weights are random: a count of parameters does not depend on them. The table says how many pieces and parameters stay,
and how many tokens more the sentences take that the files do not have.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
import transformers

from benchmarks.models.workload import read_fields
from benchmarks.places import ROOT
from translane_export.checkpoint import Checkpoint
from translane_export.narrowing.narrowing import plan_narrowing
from translane_export.settings import ExportSettings
from translane_export.sources.readers import find_reader
from translane_server.text.tokenizer import Tokenizer

DATA = ROOT.parent / "shared" / "data"
FIXTURE = Path("fixtures") / "opus-mt-zh-en"
PAIRS = Path("tatoeba-zh-en") / "train.tsv.gz"
MORE_ENGLISH = Path("tatoeba-de-en") / "train.tsv.gz"
OTHERS = {"zh": Path("flores200") / "zho_Hans.devtest", "en": Path("flores200") / "eng_Latn.devtest"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the data sets")
    data: Path = parser.parse_args().data
    if missing := [
        str(data / path) for path in (FIXTURE, PAIRS, MORE_ENGLISH, *OTHERS.values()) if not (data / path).exists()
    ]:
        sys.exit(f"{missing[0]} is not there")
    with tempfile.TemporaryDirectory() as scratch:
        print(narrowed(data, Path(scratch)))


def narrowed(data: Path, scratch: Path) -> str:
    """The table of a model with OPUS-MT's vocabulary, whose files are written into the folder `scratch`."""
    folder = scratch / "model"
    _write_model(data / FIXTURE, folder)
    chinese, english = (list(side) for side in zip(*(fields[:2] for fields in read_fields(data / PAIRS)), strict=True))
    english += [fields[1] for fields in read_fields(data / MORE_ENGLISH)]
    files = [scratch / "zh.txt", scratch / "en.txt"]
    for path, texts in zip(files, (chinese, english), strict=True):
        path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    reader = find_reader(folder)
    checkpoint = reader.read(folder)
    settings = ExportSettings(checkpoint=folder, output=scratch / "bundle", vocabulary_from=tuple(files), threads=1)
    smaller = plan_narrowing(settings, checkpoint).apply(checkpoint)
    before, after = _parameters(checkpoint), _parameters(smaller)
    tokenizers = [each.tokenizer.load(each.config, each.languages) for each in (checkpoint, smaller)]
    lines = [
        f"| texts | {len(chinese):,} of zh, {len(english):,} of en |",
        f"| pieces | {checkpoint.config.target_vocab_size:,} → {smaller.config.target_vocab_size:,} |",
        f"| parameters | {before / 1e6:.1f} M → {after / 1e6:.1f} M |",
        f"| float32 | {4 * (before - after) / 1e6:.1f} MB less |",
    ]
    for language, path in OTHERS.items():
        others = (data / path).read_text(encoding="utf-8").splitlines()
        old, new = (_tokens(tokenizer, others, of_source=language == "zh") for tokenizer in tokenizers)
        lines.append(f"| tokens of other sentences, {language} | {new / old - 1:+.1%} |")
    return "\n".join(["| | |", "|---|--:|", *lines])


def _write_model(fixture: Path, folder: Path) -> None:
    """Write a model with the configuration and the tokenizer of `fixture`, and random weights."""
    torch.manual_seed(0)
    model = transformers.MarianMTModel(transformers.MarianConfig.from_pretrained(fixture))
    model.save_pretrained(folder)
    for path in fixture.iterdir():
        if path.suffix in (".spm", ".json") and not (folder / path.name).exists():
            shutil.copyfile(path, folder / path.name)


def _parameters(checkpoint: Checkpoint) -> int:
    """How many parameters a model has, without tables of positions and of each tied weight once."""
    tensors = {
        tensor.data_ptr(): tensor.numel() for name, tensor in checkpoint.state_dict.items() if "positions" not in name
    }
    return sum(tensors.values())


def _tokens(tokenizer: Tokenizer, texts: Sequence[str], *, of_source: bool) -> int:
    encode = tokenizer.encode if of_source else tokenizer.encode_target
    return sum(map(len, encode(texts)))


if __name__ == "__main__":
    main()
