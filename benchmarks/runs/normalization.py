"""What three norms make of sentences of unequal length, and how Transformers learn with each; draws the pictures.

    python -m benchmarks.runs.normalization
    python -m benchmarks.runs.normalization --steps 1200 --threads 2

The pictures of docs/normalization.md are written into docs/normalization. The models learn to reverse random sequences
of 1 to 16 letters; those that validate are other ones. Every kind of norm that `TransformerConfig` has is trained, with
norms first and norms last.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import matplotlib
import torch
from matplotlib.figure import Figure
from torch import Tensor

from benchmarks.measuring.norms import gap_at_inference, moved_by_others, moved_by_padding
from benchmarks.places import ROOT
from benchmarks.report.plots import SERIES, STYLE, SYMBOLS, doubling_x, legend, panels, save
from translane_export.model import Transformer, TransformerConfig, label_smoothed_cross_entropy
from translane_export.model.config import NormKind, NormPlacement

FOLDER = ROOT / "docs" / "normalization"
SHARES = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
COUNTS = [2, 4, 8, 16, 32, 64, 128]
KINDS: tuple[NormKind, ...] = get_args(NormKind)
PLACEMENTS: dict[NormPlacement, str] = {"pre": "norms first (pre-norm)", "post": "norms last (post-norm)"}
NAMES = {"batch": "batch norm", "layer": "layer norm", "rms": "RMS norm"}
LOOKS = {name: (SERIES[number], SYMBOLS[number]) for number, name in enumerate(("layer", "batch", "rms"))}

LETTERS = 12
LONGEST = 16
ROWS = 32
VALIDATE_EVERY = 50  # steps
_PAD, _START, _END, _FIRST = 0, 2, 3, 4


@dataclass(frozen=True)
class Pairs:
    """Sequences and their reversals, padded: sources [B, S] of lengths [B], targets with start and end [B, T]."""

    sources: Tensor
    lengths: Tensor
    targets: Tensor


@dataclass(frozen=True)
class Curve:
    """The losses [nats a token] of a training run: of each step, and on the validation pairs by step."""

    training: list[float]
    validation: dict[int, float]


def draw_pairs(count: int, generator: torch.Generator) -> Pairs:
    lengths = torch.randint(1, LONGEST + 1, (count,), generator=generator)
    sources = torch.full((count, LONGEST + 1), _PAD)
    targets = torch.full((count, LONGEST + 2), _PAD)
    for row, length in enumerate(lengths.tolist()):
        letters = torch.randint(_FIRST, _FIRST + LETTERS, (length,), generator=generator)
        sources[row, :length], sources[row, length] = letters, _END
        targets[row, 0], targets[row, 1 : length + 1], targets[row, length + 1] = _START, letters.flip(0), _END
    return Pairs(sources, lengths + 1, targets)


def loss_of(model: Transformer, pairs: Pairs) -> Tensor:
    logits = model(pairs.sources, pairs.lengths, pairs.targets[:, :-1])
    return label_smoothed_cross_entropy(logits, pairs.targets[:, 1:], _PAD).mean


def train(kind: NormKind, placement: NormPlacement, steps: int) -> Curve:
    """Train a small model; each kind sees the same pairs in the same order."""
    torch.manual_seed(0)
    config = TransformerConfig(
        source_vocab_size=_FIRST + LETTERS, target_vocab_size=_FIRST + LETTERS, d_model=32, heads=2, ffn_size=64,
        encoder_layers=2, decoder_layers=2, max_positions=LONGEST + 2, norm_kind=kind, norm=placement, dropout=0.0,
    )  # fmt: skip
    model, generator = Transformer(config), torch.Generator().manual_seed(1)
    validation = draw_pairs(128, torch.Generator().manual_seed(2))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, betas=(0.9, 0.98))
    warm_up = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 100))
    curve = Curve([], {})
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        loss = loss_of(model.train(), draw_pairs(ROWS, generator))
        loss.backward()  # type: ignore[no-untyped-call]  # of torch
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        warm_up.step()
        curve.training.append(loss.item())
        if step % VALIDATE_EVERY == 0:
            with torch.inference_mode():
                curve.validation[step] = loss_of(model.eval(), validation).item()
    return curve


def smooth(values: Sequence[float], share: float = 0.05) -> Iterator[float]:
    mean = values[0]
    for value in values:
        mean += share * (value - mean)
        yield mean


def draw_line(axes: Any, kind: str, x: Sequence[float], y: Sequence[float]) -> None:
    colour, symbol = LOOKS[kind]
    dashes = "--" if kind == "rms" else "-"  # it lies on the layer norm's
    axes.plot(x, y, color=colour, marker=symbol, linestyle=dashes, label=NAMES[kind])


def draw_statistics() -> Figure:
    figure, (padding, others, gap) = panels(3, 3, 2.4)
    measured = (
        (padding, "padding in the statistics", "share of padding", SHARES, moved_by_padding(SHARES)),
        (others, "other sentences, in training", "sentences of the batch", COUNTS, moved_by_others(COUNTS)),
        (gap, "running statistics, at inference", "sentences of the batch", COUNTS, gap_at_inference(COUNTS)),
    )
    for axes, title, label, x, found in measured:
        for kind in ("batch", "layer", "rms"):
            draw_line(axes, kind, x, found[kind])
        axes.set_title(title)
        axes.set_xlabel(label)
        axes.set_ylim(bottom=-0.02)
    for axes in (others, gap):
        doubling_x(axes, COUNTS)
    padding.set_ylabel("change of a real token's output")
    legend(figure, padding)
    return figure


def draw_training(curves: Mapping[tuple[NormKind, NormPlacement], Curve]) -> Figure:
    figure, grid = panels(len(PLACEMENTS), 2, 2.7)
    for axes, (placement, title) in zip(grid, PLACEMENTS.items(), strict=True):
        for kind in KINDS:
            curve = curves[kind, placement]
            smoothed = list(smooth(curve.training))
            axes.plot(range(1, len(smoothed) + 1), smoothed, color=LOOKS[kind][0], lw=0.8, alpha=0.6)
            draw_line(axes, kind, list(curve.validation), list(curve.validation.values()))
        axes.set_title(title)
        axes.set_xlabel("step")
        axes.set_ylim(bottom=0)
    grid[0].set_ylabel("loss [nats a token]")
    legend(figure, grid[0])
    return figure


def draw(folder: Path, steps: int) -> list[Path]:
    """Measure, train, and write both pictures; return where they are."""
    curves = {}
    for placement in PLACEMENTS:
        for kind in KINDS:
            curve = curves[kind, placement] = train(kind, placement, steps)
            last = max(curve.validation)
            print(f"{placement:>4}, {NAMES[kind]}: validation loss {curve.validation[last]:.3f} after {last} steps")
    for name, found in (
        ("padding", moved_by_padding(SHARES)),
        ("others", moved_by_others(COUNTS)),
        ("gap", gap_at_inference(COUNTS)),
    ):
        for norm, values in found.items():
            print(f"{name}, {NAMES[norm]}:", *(f"{value:.3f}" for value in values))
    with matplotlib.rc_context(STYLE):
        return [
            save(draw_statistics(), folder / "statistics.png"),
            save(draw_training(curves), folder / "training.png"),
        ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000, help="of each training run (%(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch (%(default)s)")
    arguments = parser.parse_args()
    if not VALIDATE_EVERY <= arguments.steps <= 100_000 or not 1 <= arguments.threads <= 1024:
        parser.error(f"--steps is {VALIDATE_EVERY} to 100000, and --threads 1 to 1024")
    torch.set_num_threads(arguments.threads)
    for path in draw(FOLDER, arguments.steps):
        print(path)


if __name__ == "__main__":
    main()
