"""The history of a run as event files of TensorBoard (https://www.tensorflow.org/tensorboard)."""

from __future__ import annotations

from pathlib import Path

from torch.utils.tensorboard import SummaryWriter

from translane_export.train.history import Record, StepRecord

EVENTS_FOLDER = "tensorboard"


class EventFiles:
    """Writes scalars: train/loss, train/learning_rate, train/tokens_per_second, validation/bleu and validation/chrf."""

    def __init__(self, folder: Path, *, last_step: int = 0) -> None:
        """Start a file in `folder`. TensorBoard then leaves out what older files say about steps after `last_step`."""
        self._writer = SummaryWriter(str(folder), purge_step=last_step + 1)

    def add(self, record: Record) -> None:
        """Write a record."""
        if isinstance(record, StepRecord):
            group, names = "train", ["loss", "learning_rate", "tokens_per_second"]
        else:
            group, names = "validation", ["bleu", "chrf"]
        for name in names:
            self._writer.add_scalar(f"{group}/{name}", getattr(record, name), record.step)
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        self._writer.close()
