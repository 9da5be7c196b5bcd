"""Records a bundle and its translations. Later releases must read the bundle and translate in the same way.

A new schema version gets three new folders: fp32, int8, and fp16, whose graphs have the CUDA form. Folders of old
versions are never written again::

    PYTHONPATH=tests python -m helpers.reference_bundle tests/data/bundles/v5
    PYTHONPATH=tests python -m helpers.reference_bundle tests/data/bundles/v5-int8 --precision int8
    PYTHONPATH=tests python -m helpers.reference_bundle tests/data/bundles/v5-fp16 --precision fp16
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import get_args

import numpy as np

from helpers.bundles import SOURCES, random_bundle
from translane_server.backend import StepNeeds
from translane_server.bundle import load_bundle
from translane_server.manifest import Precision
from translane_server.runtime.ort import OrtBackend
from translane_server.runtime.sessions import Sessions
from translane_server.text.tokenizer import load_tokenizer

EXPECTED = "expected.json"
ATTENTION = "attention.json"
STEPS = 24
ATTENTION_STEPS = 3  # steps of each sentence whose attention weights are recorded
# Two candidates that are closer than this may change places on another processor.
SMALLEST_MARGIN = 1e-3


def decode(folder: Path) -> tuple[dict[str, list[int]], float]:
    """Return the greedy ids of every source, and the smallest lead of a chosen token over the second best."""
    bundle = load_bundle(folder)
    special = bundle.manifest.special_ids
    backend = OrtBackend(Sessions(bundle, threads=1), rows=1, source_capacity=32, target_capacity=STEPS)
    found: dict[str, list[int]] = {}
    margin = float("inf")
    for text, source in zip(SOURCES, load_tokenizer(bundle).encode(SOURCES), strict=True):
        tokens = [special.decoder_start]
        backend.encode([source], 0)
        while len(tokens) <= STEPS and (len(tokens) == 1 or tokens[-1] != special.eos):
            step = backend.decode_step(
                np.array(tokens[-1:], np.int64), np.array([len(tokens) - 1], np.int32), StepNeeds(2)
            )
            assert step.log_probs is not None
            margin = min(margin, float(step.log_probs[0, 0] - step.log_probs[0, 1]))
            tokens.append(int(step.token_ids[0, 0]))
        found[text] = tokens[1:]
    return found, margin


def attend(folder: Path) -> dict[str, list[list[float]]]:
    """Return the attention weights of the first steps on every source. The fed tokens are the source's own ids."""
    bundle = load_bundle(folder)
    backend = OrtBackend(Sessions(bundle, threads=1), rows=1, source_capacity=32, target_capacity=STEPS)
    found: dict[str, list[list[float]]] = {}
    for text, source in zip(SOURCES, load_tokenizer(bundle).encode(SOURCES), strict=True):
        backend.encode([source], 0)
        found[text] = []
        for step in range(min(ATTENTION_STEPS, len(source))):
            fed = np.array(source[step : step + 1], np.int64) % bundle.manifest.architecture.target_vocab_size
            weights = backend.decode_step(fed, np.array([step], np.int32), StepNeeds(attention=True)).attention
            assert weights is not None
            found[text].append([round(weight, 6) for weight in weights[0, : len(source)].tolist()])
    return found


def record(folder: Path, precision: Precision) -> None:
    """Write the bundle of the first seed whose choices are all clear, and what the bundle decodes."""
    for seed in range(1000):
        sizes = {"d_model": 16, "ffn_size": 32, "encoder_layers": 1, "decoder_layers": 2, "max_positions": 32}
        random_bundle(folder, seed=seed, eos_bias=0.5, export={"name": "reference", "precision": precision}, **sizes)
        tokens, margin = decode(folder)
        telling = (
            len({tuple(ids) for ids in tokens.values()}) == len(SOURCES) and len(set().union(*tokens.values())) > 8
        )
        if margin > SMALLEST_MARGIN and telling:
            (folder / EXPECTED).write_text(json.dumps(tokens, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            (folder / ATTENTION).write_text(json.dumps(attend(folder), ensure_ascii=False) + "\n", encoding="utf-8")
            print(f"seed {seed}, smallest margin {margin:.4f}")
            return
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
    raise SystemExit("no seed gives clear choices")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--precision", choices=get_args(Precision), default="fp32")
    arguments = parser.parse_args()
    record(arguments.folder, arguments.precision)
