"""Draws the history of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from translane_export.train.history import Record, StepRecord, ValidationRecord
from translane_server.whole_files import replaced_whole

PLOT_FILE = "history.png"
_INCHES = (10, 7)
_DOTS_PER_INCH = 120


def draw_history(records: Sequence[Record], path: Path) -> None:
    """Write a PNG with four curves over the steps: loss, learning rate, validation BLEU and target tokens per second.

    The file appears complete or not at all. Raises OSError when it cannot be written.
    """
    steps = [record for record in records if isinstance(record, StepRecord)]
    validations = [record for record in records if isinstance(record, ValidationRecord)]
    at_steps, at_validations = [each.step for each in steps], [each.step for each in validations]
    figure = Figure(figsize=_INCHES, layout="constrained")  # without pyplot, so without a display
    (loss, rate), (bleu, speed) = figure.subplots(2, 2, sharex=True)
    loss.plot(at_steps, [each.loss for each in steps])
    loss.set_ylabel("loss [nats per target token]")
    rate.plot(at_steps, [each.learning_rate for each in steps])
    rate.set_ylabel("learning rate")
    bleu.plot(at_validations, [each.bleu for each in validations], marker=".")
    bleu.set_ylabel("validation BLEU")
    speed.plot(at_steps, [each.tokens_per_second for each in steps])
    speed.set_ylabel("target tokens per second")
    speed.set_ylim(bottom=0)
    for axes in (loss, rate, bleu, speed):
        axes.grid(visible=True, alpha=0.3)
    for axes in (bleu, speed):
        axes.set_xlabel("step")
    with replaced_whole(path) as new:
        figure.savefig(new, format="png", dpi=_DOTS_PER_INCH)
