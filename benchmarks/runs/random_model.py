"""Writes a checkpoint of random weights: benchmarks of speed need a model of some size, not a model that translates.

python -m benchmarks.runs.random_model -o runs/base-random --preset base --vocab-size 32000
translane export runs/base-random -o runs/base-random-bundle
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from benchmarks.models.letters import characters
from translane_export.checkpoint import save_checkpoint
from translane_export.model import PRESETS, Transformer, TransformerConfig


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--preset", choices=sorted(PRESETS), default="base")
    parser.add_argument("--vocab-size", type=int, default=32000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()

    torch.manual_seed(arguments.seed)
    size = arguments.vocab_size
    config = TransformerConfig(source_vocab_size=size, target_vocab_size=size, **PRESETS[arguments.preset])
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    vocabulary = arguments.output.with_suffix(".spm")
    vocabulary.write_bytes(characters())
    save_checkpoint(
        arguments.output,
        config=config,
        state_dict=Transformer(config).state_dict(),
        source_tokenizer=vocabulary,
        target_tokenizer=vocabulary,
        source_language="en",
        target_language="en",
        samples=(),
        metadata={},
    )
    vocabulary.unlink()
    print(f"{arguments.output}: {sum(p.numel() for p in Transformer(config).parameters()):,} parameters")


if __name__ == "__main__":
    main()
